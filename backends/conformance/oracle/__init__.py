"""The contract in float64 NumPy, written from its text and not from any backend."""

from .filters import TOLERANCE
from .inputs import RequestInputs, split_verify
from .request import RequestOracle
from .sample import SampleOracle, split_sample

__all__ = [
    "TOLERANCE",
    "RequestInputs",
    "RequestOracle",
    "SampleOracle",
    "split_sample",
    "split_verify",
]
