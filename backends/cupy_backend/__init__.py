"""The CuPy backend: CUDA C++ compiled at run time, one to four launches a step."""

from .sampler import CupySampler

__all__ = ["CupySampler"]
