"""The CuPy backend: CUDA C++ compiled at run time, one launch a step or two."""

from .sampler import CupySampler
from .shape import LaunchShape
from .workspace import Extent, Workspace

__all__ = ["CupySampler", "Extent", "LaunchShape", "Workspace"]
