"""A backend by its name in the registry, or by where its class is; refuses to guess."""

from importlib import import_module

from ...core.errors import UnavailableError
from ...core.ports import Sampler
from ..registry import load_sampler


def load_backend(name: str) -> Sampler:
    """Make the sampler to be held to the contract.

    Args:
        name: a registered name, or "package.module:Class", which is called without arguments.

    Raises:
        UnavailableError: it is unknown, or something that it needs is missing.
    """
    module, colon, class_name = name.partition(":")
    if not colon:
        return load_sampler(name)
    try:
        sampler: Sampler = getattr(import_module(module), class_name)()
    except (ImportError, AttributeError) as error:
        raise UnavailableError(f"backend {name}: {error}") from error
    return sampler
