"""The backends by name. A backend is imported only when chosen, and none falls back to another.

An unknown or unavailable backend raises an error that lists the known names or what is missing.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from textwrap import shorten
from types import MappingProxyType

from attrs import frozen

from ..core import AcceptorError, Sampler, UnavailableError
from .checked import CheckedSampler

GROUP = "acceptor.backends"
"""The entry-point group through which other distributions offer samplers as "module:Class"."""


@frozen
class Backend:
    """One entry of the registry.

    Attributes:
        name: the name that users choose it by.
        factory: "module:Class", absolute or relative to this package, called without arguments.
        summary: one line for people.
        requires, install: third-party modules that it imports, and how to get them, if known.
        needs_cuda: whether it runs on CUDA devices only (Triton's interpreter aside).
    """

    name: str
    factory: str
    summary: str
    requires: tuple[str, ...] = ()
    install: str = ""
    needs_cuda: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """The required modules that are not installed."""
        return tuple(module for module in self.requires if not _is_installed(module))

    def load(self) -> Sampler:
        """Import the backend and make its sampler; see `load_sampler`."""
        if self.install and self.missing:
            raise UnavailableError(
                f"backend {self.name}: needs {', '.join(self.missing)}; "
                f"install with: {self.install}"
            )
        module, _, class_name = self.factory.partition(":")
        try:
            sampler: Sampler = getattr(import_module(module, __package__), class_name)()
        except AcceptorError:
            raise
        except Exception as error:
            found_none = isinstance(error, ImportError | AttributeError)
            kind = "" if found_none else f"{type(error).__name__}: "
            said = f"backend {self.name}: expected {self.factory}, got {kind}{error}"
            # On one line, and without what a terminal would obey.
            raise UnavailableError(repr(shorten(said, 400))[1:-1]) from error
        return sampler


def _is_installed(module: str) -> bool:
    """Whether a module can be found; unlike `find_spec`, this imports no parent package."""
    name, *parts = module.split(".")
    spec = find_spec(name)
    for part in parts:
        name = f"{name}.{part}"
        spec = spec and PathFinder.find_spec(name, spec.submodule_search_locations or ())
    return spec is not None


_OWN = {
    backend.name: backend
    for backend in (
        Backend(
            name="reference",
            factory=".reference:ReferenceSampler",
            summary="plain PyTorch in float64, CPU or CUDA",
        ),
        Backend(
            name="triton",
            factory=".triton_backend:TritonSampler",
            summary="Triton kernels for CUDA",
            requires=("triton",),
            install="pip install 'acceptor[triton]'",
            needs_cuda=True,
        ),
        Backend(
            name="cupy",
            factory=".cupy_backend:CupySampler",
            summary="CUDA C++ compiled at run time; CUDA only",
            requires=("cupy",),
            install="pip install 'acceptor[cupy]'",
            needs_cuda=True,
        ),
    )
}


def _known() -> Mapping[str, Backend]:
    offered = (entry for entry in entry_points(group=GROUP) if entry.name not in _OWN)
    return MappingProxyType(_OWN | {entry.name: _offered(entry) for entry in offered})


def _offered(entry: EntryPoint) -> Backend:
    source = entry.dist.name if entry.dist else entry.value
    module = entry.value.partition(":")[0]
    return Backend(entry.name, entry.value, f"from {source}", requires=(module,))


BACKENDS: Mapping[str, Backend] = _known()
"""Every known backend by its name: ours first, then those of other distributions."""


def load_sampler(name: str, *, checked: bool = False) -> Sampler:
    """Import a backend and make its sampler.

    Args:
        name: one of `BACKENDS`.
        checked: check the values of every call, to find mistakes; this waits for the device.
    """
    backend = BACKENDS.get(name)
    if backend is None:
        raise UnavailableError(f"backend: expected one of {', '.join(BACKENDS)}, got {name!r}")
    sampler = backend.load()
    return CheckedSampler(sampler) if checked else sampler
