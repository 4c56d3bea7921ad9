"""The contract in float64 NumPy, written from its text and not from any backend."""

from .inputs import RequestInputs, split_sample, split_verify
from .law import TOLERANCE, margin_of
from .logprobs import RowLogprobs
from .request import RequestOracle

__all__ = [
    "TOLERANCE",
    "RequestInputs",
    "RequestOracle",
    "RowLogprobs",
    "margin_of",
    "split_sample",
    "split_verify",
]
