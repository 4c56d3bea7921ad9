"""Audits anyone's rejection sampler: does its output follow the target's law?

`run.audit` runs it on small laws whose outcomes can all be counted, and compares the counts with
the exact law. If they differ, it says which of `mistakes.MISTAKES` fit.
"""
