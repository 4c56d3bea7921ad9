"""Holds any backend to the contract: random batches, an independent oracle, the near-tie rule.

`python -m acceptor.backends.conformance` is for people, `test_backend` with `pytest_plugin` for
test suites. A case becomes requests (`inputs`), which a backend draws, drafts and verifies
(`check`); `judge` compares with the `oracle`, `variations` with other layouts, `beside` with
another backend.
"""

from importlib.util import find_spec

from ...core.errors import UnavailableError

if find_spec("hypothesis") is None:
    raise UnavailableError(
        "conformance: needs hypothesis; install with: pip install 'acceptor[conformance]'"
    )

from .case import Case
from .findings import Difference, Findings, Tally
from .judge import judge_sample, judge_verify
from .loading import load_backend
from .run import Failure, first_failure, run_case, run_chunk, run_corners
from .strategies import cases, policies

__all__ = [
    "Case",
    "Difference",
    "Failure",
    "Findings",
    "Tally",
    "cases",
    "first_failure",
    "judge_sample",
    "judge_verify",
    "load_backend",
    "policies",
    "run_case",
    "run_chunk",
    "run_corners",
]
