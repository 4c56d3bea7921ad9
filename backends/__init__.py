"""Interchangeable samplers, all with the core's port; importing this imports none of them."""

from .registry import BACKENDS, Backend, load_sampler

__all__ = ["BACKENDS", "Backend", "load_sampler"]
