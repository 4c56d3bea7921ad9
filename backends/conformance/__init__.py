"""Holds any backend to the contract: random batches, an independent oracle, the near-tie rule.

`python -m acceptor.backends.conformance` is for people, `test_backend` with `pytest_plugin` for
test suites. `case` makes cases, `corners` lists those at the ends, and a `campaign` shares them out
among processes. A case becomes `requests` with logits (`inputs`), which a backend draws, drafts and
verifies (`calls`). `judge` compares with the `oracle`, `run` with another backend or with the same
requests in another batch. `findings` are what came out.
"""

from .calls import load_backend
from .case import Case, Generator
from .findings import Difference, Findings
from .judge import judge_sample, judge_verify
from .run import run_case, smallest_failure

__all__ = [
    "Case",
    "Difference",
    "Findings",
    "Generator",
    "judge_sample",
    "judge_verify",
    "load_backend",
    "run_case",
    "smallest_failure",
]
