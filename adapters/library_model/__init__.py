"""Any causal language model that the transformers library loads, as a `LanguageModel`.

Importing this imports transformers.
"""
