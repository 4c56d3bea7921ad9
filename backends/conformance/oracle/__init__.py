"""The contract in float64 NumPy, written from its text and not from any backend."""

from .inputs import RequestInputs, split_verify
from .margin import TOLERANCE, margin_of
from .request import RequestOracle
from .sample import SampleOracle, split_sample

__all__ = [
    "TOLERANCE",
    "RequestInputs",
    "RequestOracle",
    "SampleOracle",
    "margin_of",
    "split_sample",
    "split_verify",
]
