"""The CuPy backend: CUDA C++ compiled at run time, two to five launches a step."""

from .sampler import CupySampler

__all__ = ["CupySampler"]
