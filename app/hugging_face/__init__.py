"""Speculative decoding for `generate` of the transformers library, through its `custom_generate`.

Importing this imports transformers.
"""

from .speculation import Speculation, SpeculativeOutput, generate

__all__ = ["Speculation", "SpeculativeOutput", "generate"]
