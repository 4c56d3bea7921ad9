"""Audits anyone's rejection sampler: does what it emits follow the target's law?

`run.audit` runs it on small laws whose outcomes can all be counted and compares counts with the
exact law. Where they differ, it says which of `mistakes.MISTAKES` fit.
"""
