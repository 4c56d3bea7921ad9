"""The Triton backend: CUDA kernels that read raw logits about once."""

from .sampler import TritonSampler

__all__ = ["TritonSampler"]
