"""The reference backend in plain PyTorch."""

from .sampler import ReferenceSampler

__all__ = ["ReferenceSampler"]
