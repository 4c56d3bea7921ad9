"""The Triton backend: kernels that read raw logits about once."""

from .sampler import TritonSampler

__all__ = ["TritonSampler"]
