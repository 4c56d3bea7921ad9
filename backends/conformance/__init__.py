"""Holds any backend to the contract: random batches, an independent oracle, the near-tie rule.

`python -m acceptor.backends.conformance` is for people, `test_backend` with `pytest_plugin` for
test suites. `case` makes random cases, `corners` lists extreme ones, and a `campaign` distributes
them over processes. A case becomes `requests` with `params` and logits (`inputs`), which a backend
draws, drafts and verifies (`calls`). `judge` compares the results with the `oracle`; `run` compares
them with another backend, or with the same requests in another batch. `findings` holds the outcome.
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
