"""The contract in float64 NumPy, written from its text and not from any backend."""

from .inputs import split_sample, split_verify
from .law import TOLERANCE, margin_of
from .logprobs import RowLogprobs
from .request import RequestOracle
from .view import RequestView

__all__ = [
    "TOLERANCE",
    "RequestOracle",
    "RequestView",
    "RowLogprobs",
    "margin_of",
    "split_sample",
    "split_verify",
]
