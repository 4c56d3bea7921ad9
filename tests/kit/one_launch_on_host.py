"""The forward in one launch built by g++, to be called as a function of the host."""

import ctypes
import json
import math
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from acceptor.adapters.kv_cache import KVCache
from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.one_launch.launch import PROGRAM
from acceptor.adapters.one_launch.maps import MOST_DOWN_BLOCKS
from acceptor.adapters.one_launch.sizes import (
    CTAS_OF_CLUSTER,
    HEAD_DIM,
    HIDDEN,
    KEY_HEADS,
    MOST_TOKENS,
    NUM_CLUSTERS,
    THREADS,
    linears_of,
    macros,
)
from acceptor.adapters.random_weights import random_model
from kit.llama_shapes import DRAFT

GXX = shutil.which("g++")
SIZES = {"num_hidden_layers": 2, "vocab_size": 2128}
MAX_LEN = 640
_SHIMS = [
    Path(__file__).parents[1] / name
    for name in ("cuda_on_host", "adapters/cuda_on_host", "adapters/one_launch_on_host")
]
_POINTERS = ctypes.c_void_p
_NUMBER, _FLOAT = ctypes.c_longlong, ctypes.c_float


class Arguments(ctypes.Structure):
    """As the shim names them."""

    _fields_ = (
        *((name, _POINTERS) for name in ("layers", "maps", "embedding", "norm", "angles")),
        *(("max_len", _NUMBER), ("scale", _FLOAT), ("eps", _FLOAT)),
        *(("token_ids", _POINTERS), ("token_stride", _NUMBER)),
        *(("positions", _POINTERS), ("position_stride", _NUMBER)),
        *((name, _POINTERS) for name in ("slot", "first_is_new", "logits", "parts", "last_tag")),
    )


@frozen(eq=False)
class OnHost:
    """A model's forward.

    Attributes:
        kept: what the kernel reads.
    """

    model: TransformerModel
    cache: KVCache
    library: Any
    kept: dict[str, Tensor]

    @classmethod
    def of(cls, model: TransformerModel, cache: KVCache, num_tokens: int, folder: Path) -> "OnHost":
        """Weights of a model on a CPU are copied to where a GPU has them, row by row."""
        matrices = [weight.contiguous() for weight in _matrices(model)]
        layers = [
            [layer.attention_norm.weight.data_ptr(), layer.mlp_norm.weight.data_ptr(), memory]
            for layer, memory in zip(
                model.decoder.layers,
                (layer_cache.memory.data_ptr() for layer_cache in cache.layers),
                strict=True,
            )
        ]
        maps = bytearray(b"".join(_maps(matrices)))
        parts = (KEY_HEADS + 2 * NUM_CLUSTERS, MOST_TOKENS, HIDDEN, 2)
        kept = {str(index): matrix for index, matrix in enumerate(matrices)} | {
            "layers": torch.tensor(layers),
            "maps": torch.frombuffer(maps, dtype=torch.uint8),
            "parts": torch.zeros(parts, dtype=torch.int32),
            "last_tag": torch.zeros(1, dtype=torch.int32),
        }
        names = macros(num_tokens, len(model.decoder.layers), model.vocab_size)
        return cls(model, cache, _build(names, folder), kept)

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        slot: Tensor,
        first_is_new: Tensor,
        *,
        seed: int,
        waiting: int,
    ) -> Tensor:
        """See `OneLaunch.forward`; of four warps, so many do not run at a time."""
        decoder, kept = self.model.decoder, self.kept
        logits = torch.empty(1, 1, self.model.vocab_size, dtype=torch.bfloat16)
        arguments = Arguments(
            *(kept[name].data_ptr() for name in ("layers", "maps")),
            *(decoder.embedding.data_ptr(), decoder.norm.weight.data_ptr()),
            self.model._rope_table.data_ptr(),
            self.cache.max_len,
            math.log2(math.e) / math.sqrt(HEAD_DIM),
            decoder.norm.eps,
            *(token_ids.data_ptr(), token_ids.stride(1), positions.data_ptr(), positions.stride(1)),
            *(slot.data_ptr(), first_is_new.data_ptr(), logits.data_ptr()),
            *(kept[name].data_ptr() for name in ("parts", "last_tag")),
        )
        self.library.run_forward(ctypes.byref(arguments), seed, waiting)
        return logits


@frozen
class Trial:
    """A forward to be compared.

    Attributes:
        length: of what is in the cache before.
        waiting: see `OnHost.forward`.
        same_place: whether all tokens are at one position.
        first_is_new: see `OneLaunch.forward`.
    """

    length: int
    waiting: int
    same_place: bool = False
    first_is_new: bool = True

    def tokens(
        self, num_tokens: int, vocab_size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Ids and positions, [1, num_tokens] each."""
        wide = torch.randint(vocab_size, (1, 3 * num_tokens), generator=generator)
        token_ids, positions = wide[:, ::3], self.length + torch.arange(num_tokens)[None]
        if self.same_place:
            token_ids = token_ids[:, :1].expand(1, num_tokens)
            positions = positions[:, :1] + 0 * positions
        return token_ids, positions


def largest_difference(num_tokens: int, trials: Sequence[Trial]) -> float:
    """Of forwards, one behind the other, relative to the largest; of logits and of the cache."""
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(_config(Path(folder)), dtype=torch.bfloat16, device="cpu")
        caches = [model.new_cache(2, MAX_LEN) for _ in range(2)]
        on_host = OnHost.of(model, caches[1], num_tokens, Path(folder))
    generator, slot, largest = torch.Generator().manual_seed(1), torch.tensor([1]), 0.0
    for ours, theirs in zip(*(cache.layers for cache in caches), strict=True):
        ours.memory.normal_(generator=generator)
        theirs.memory.copy_(ours.memory)
    for seed, trial in enumerate(trials):
        ids, positions = trial.tokens(num_tokens, model.vocab_size, generator)
        is_new, waiting = torch.tensor([int(trial.first_is_new)]), trial.waiting
        got = on_host.forward(ids, positions, slot, is_new, seed=seed, waiting=waiting)
        new = slice(0 if trial.first_is_new else 1, None)
        want = model.forward(ids[:, new], positions[:, new], caches[0], slot, last_only=True)
        memories = zip(*(cache.layers for cache in caches), strict=True)
        pairs = [(want, got), *((ours.memory, theirs.memory) for ours, theirs in memories)]
        largest = max(largest, *(_difference(*pair) for pair in pairs))
    return largest


def _difference(want: Tensor, got: Tensor) -> float:
    return float((got.float() - want.float()).abs().max() / want.float().abs().max())


def _config(folder: Path) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(DRAFT | SIZES), encoding="utf-8")
    return file


def _matrices(model: TransformerModel) -> Iterator[Tensor]:
    for layer in model.decoder.layers:
        yield from (linear.weight for linear in linears_of(layer))
    yield model.decoder.lm_head.weight


def _maps(matrices: list[Tensor]) -> Iterator[bytes]:
    """As `maps_of` would have them, for the shim."""
    *of_layers, head = matrices
    for first in range(0, len(of_layers), 4):
        qkv, output, gate_up, down = of_layers[first : first + 4]
        yield from (_map(qkv, 8, 4), _map(output, 8, 4), _map(gate_up, 8, 8))
        yield from (_map(down, 16, blocks) for blocks in range(1, MOST_DOWN_BLOCKS + 1))
    yield _map(head, 16, 8)


def _map(matrix: Tensor, rows: int, blocks: int) -> bytes:
    return struct.pack("=QqqII96x", matrix.data_ptr(), *matrix.shape, rows, blocks)


def _build(names: tuple[str, ...], folder: Path) -> ctypes.CDLL:
    texts = PROGRAM.sources | {
        file.name: file.read_text(encoding="utf-8") for shim in _SHIMS for file in shim.iterdir()
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    library, source = folder / "one_launch.so", folder / "one_launch_on_host.cpp"
    options = ["-std=c++17", "-O3", "-march=native", "-w", "-shared", "-fPIC"]
    options += ["-fno-strict-aliasing", "-fcf-protection=none", *names]
    options += [f"-DCLUSTER={CTAS_OF_CLUSTER}", f"-DCTA_THREADS={THREADS}"]
    subprocess.run([str(GXX), *options, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))
