"""The streamed products built by g++, to be called as functions of the host."""

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from attrs import field, frozen

from acceptor.adapters.streamed_products import product
from acceptor.adapters.streamed_products.forms import Form
from acceptor.adapters.streamed_products.maps import Cut
from acceptor.adapters.streamed_products.product import PROGRAM, StreamedProducts

GXX = shutil.which("g++")
_SHIMS = [
    Path(__file__).parents[1] / name
    for name in ("cuda_on_host", "adapters/cuda_on_host", "adapters/streamed_products_on_host")
]
_ALIGNED = 64


@frozen(eq=False)
class KernelOnHost:
    """As `Kernel`.

    Attributes:
        seed, waiting_of_four: in which order threads run; see `run_all`.
    """

    form: Form
    way: str
    folder: Path
    seed: int
    waiting_of_four: int
    launches: list[int] = field(factory=list)

    def launch(self, num_ctas: int, arguments: bytes, device: torch.device) -> None:
        del device
        memory = ctypes.create_string_buffer(len(arguments) + _ALIGNED)
        place = -(-ctypes.addressof(memory) // _ALIGNED) * _ALIGNED
        ctypes.memmove(place, arguments, len(arguments))
        library = _build(self.form, self.way, num_ctas, self.folder)
        library.run_product(ctypes.c_void_p(place), self.seed, self.waiting_of_four)
        self.launches.append(num_ctas)


@contextmanager
def on_host(
    num_processors: int, folder: Path, seed: int, waiting_of_four: int
) -> Iterator[StreamedProducts]:
    """Products of a GPU with so many processors."""

    def load(form: Form, way: str, device: torch.device) -> KernelOnHost:
        del device
        return KernelOnHost(form, way, folder, seed, waiting_of_four)

    with (
        patch.object(product, "load_kernel", load),
        patch.object(product, "tensor_map", _map),
    ):
        yield StreamedProducts(torch.device("cpu"), num_processors)


def _map(cut: Cut) -> bytes:
    """As `tensor_map` would have it, for the shim."""
    more = 5 - len(cut.sizes)
    ones, zeros = (1,) * more, (0,) * more
    numbers = (*cut.sizes, *ones, *cut.box, *ones, *cut.strides, *zeros)
    return struct.pack("=Q10I4q48x", cut.pointer, *numbers)


def _build(form: Form, way: str, num_ctas: int, folder: Path) -> ctypes.CDLL:
    texts = PROGRAM.sources | {
        file.name: file.read_text(encoding="utf-8") for shim in _SHIMS for file in shim.iterdir()
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    source = folder / "streamed_products_on_host.cpp"
    names = (f"-DCLUSTERS={num_ctas // form.splits}", f"-DCTA_THREADS={form.threads}")
    # A library that is loaded must not be written again.
    library = folder / f"{abs(hash((form, way, names)))}.so"
    if library.exists():
        return ctypes.CDLL(str(library))
    options = ["-std=c++17", "-O1", "-w", "-Wno-psabi", "-shared", "-fPIC", "-fno-strict-aliasing"]
    options += ["-fcf-protection=none", *form.macros(way), *names]
    subprocess.run([str(GXX), *options, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))
