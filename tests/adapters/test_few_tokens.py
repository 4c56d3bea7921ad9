"""The kernels for few tokens: they agree with torch's operations, and fit a GPU."""

import json
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.adapters.random_weights import random_model
from kit.interpreted import compile_for, interpret
from kit.shapes import DRAFT, FOR_KERNELS

pytest.importorskip("triton")

from acceptor.adapters.few_tokens import attend, tiling
from acceptor.adapters.few_tokens.forward import HEAD_DIMS
from acceptor.adapters.few_tokens.tiling import Gpu

COMPILE_ALL = """
import torch
from acceptor.adapters.few_tokens import attend, forward, tiling
from attrs import evolve
from kit.few_tokens import GPU, MAX_LEN, model_of
tiling.NARROW, tiling.LEAST_DEPTH = evolve(tiling.NARROW, rows=16), 16
tiling.SHORT, tiling.ADDED = evolve(tiling.SHORT, rows=16), evolve(tiling.ADDED, rows=16)
gpu = evolve(GPU, prefetches=True, overlaps=int(sys.argv[1]) >= 90)

compiled = set()

class CompileOnly:
    def __init__(self, kernel): self.kernel = kernel
    def __getitem__(self, grid):
        def compile(*args, **options):
            assert self.kernel.warmup(*args, grid=grid, **options).asm["cubin"]
            compiled.add((self.kernel.__name__, options.get("TURNS"), options.get("SPLITS", 1) > 1))
        return compile

places = {"matrix": tiling, "block": tiling, "attention": attend, "embed": forward}
for name, place in places.items():
    setattr(place, f"{name}_kernel", CompileOnly(getattr(place, f"{name}_kernel")))
cases = (("biased", 20, 1), ("normalised heads", None, 3), ("plain", None, 12), ("plain", None, 50))
for architecture, window, num_tokens in cases:
    model = model_of(architecture, window, torch.bfloat16)
    few = forward.FewTokens.of(model.decoder, model.config.rope.table(MAX_LEN).bfloat16(), gpu)
    ids = torch.zeros(1, num_tokens, dtype=torch.int64)
    width = model.decoder.layers[0].attention.output.weight.shape[1]
    elsewhere = lambda attention, qkv, cache: qkv.new_empty(len(qkv), width)
    attends = few.attention_at(ids, ids[:, 0]) or elsewhere
    few.forward(ids, attends, model.new_cache(1, MAX_LEN), last_only=False)
blocks = {("block_kernel", turns, splits) for turns, splits in ((0, 1), (1, 0))}
others = {(f"{name}_kernel", None, False) for name in ("matrix", "attention", "embed")}
assert compiled == blocks | others
"""


@pytest.mark.slow
def test_the_interpreted_kernels_agree_with_plain_operations() -> None:
    interpret("kit.few_tokens")


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "100"])
def test_all_kernels_compile(capability: str, tmp_path: Path) -> None:
    compile_for(capability, COMPILE_ALL, tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("num_reqs", "num_tokens"),
    [
        *((1, 1), (1, 2), (1, 5), (2, 4), (3, 3), (16, 1), (5, 4), (16, 2)),
        *((4, 8), (1, 20), (12, 4), (16, 4), (2, 30), (40, 4)),
    ],
)
def test_a_gpu_says_what_its_operations_say(tmp_path: Path, num_reqs: int, num_tokens: int) -> None:
    compare(tmp_path, num_reqs, num_tokens)


@pytest.mark.gpu
def test_several_tiles_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_processors = evolve(Gpu.of(torch.device("cuda")), num_processors=5)
    monkeypatch.setattr(Gpu, "of", lambda device: few_processors)  # noqa: ARG005
    compare(tmp_path, 16, 4)


def compare(tmp_path: Path, num_reqs: int, num_tokens: int) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(DRAFT | FOR_KERNELS), encoding="utf-8")
    few, plain = (
        random_model(file, dtype=torch.bfloat16, device="cuda", forward=forward)
        for forward in ("triton", "torch")
    )
    assert (few.forward_name, plain.forward_name) == ("triton", "torch")
    caches = [few.new_cache(num_reqs + 1, 300) for _ in range(2)]
    slots = torch.randperm(num_reqs + 1, device="cuda")[:num_reqs]
    prompts = torch.randint(1024, (num_reqs, 150), device="cuda")
    places = torch.arange(150, device="cuda").repeat(num_reqs, 1)
    for cache in caches:
        plain.forward(prompts, places, cache, slots)
    starts = torch.randint(1, 151, (num_reqs, 1), device="cuda")
    for last_only in (False, True):
        token_ids = torch.randint(1024, (num_reqs, num_tokens), device="cuda")
        positions = starts + torch.arange(num_tokens, device="cuda")
        want, got = (
            model.forward(token_ids, positions, cache, slots, last_only=last_only, taps=(0, 1))
            for model, cache in zip((plain, few), caches, strict=True)
        )
        for one, other in zip((want.logits, *want.hidden), (got.logits, *got.hidden), strict=True):
            assert (one.float() - other.float()).abs().max() <= 0.05 * one.abs().max()
        starts += num_tokens


META = torch.device("meta")
H200 = Gpu(num_processors=132, shared_memory=227 * 1024, prefetches=True, overlaps=True)
A100 = Gpu(num_processors=108, shared_memory=163 * 1024, prefetches=True, overlaps=False)
SMALL = Gpu(num_processors=34, shared_memory=99 * 1024, prefetches=True, overlaps=False)
OTHER = Gpu(num_processors=304, shared_memory=64 * 1024, prefetches=False, overlaps=False)
GPUS = [H200, A100, SMALL, OTHER, evolve(H200, num_processors=5), evolve(H200, num_processors=148)]
WIDE = (4096, 14336)
ALL = [(6144, 4096), (4096, 4096), (28672, 4096), WIDE, (128256, 4096)]
ALL += [(3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192), (128256, 2048)]
"""The products of Llama 3 8B's and Llama 3.2 1B's layers and heads."""


def weight(rows: int, size: int) -> Tensor:
    return torch.empty(rows, size, dtype=torch.bfloat16, device=META)


def tiling_of(
    num_tokens: int, shape: tuple[int, int], on: Gpu = H200, *, add: bool = False
) -> tiling.Tiling:
    return tiling.tiling_of(num_tokens, weight(*shape), on, add=add)


@pytest.mark.parametrize("on", GPUS)
@pytest.mark.parametrize("num_tokens", [9, 16, 24, 48, 64])
def test_a_block_has_each_row_once_and_room_for_its_stages(num_tokens: int, on: Gpu) -> None:
    parts, counts = tiling.scratch(META, on)
    for shape, add in product(ALL, (False, True)):
        found = tiling_of(num_tokens, shape, on, add=add)
        sizes, (num_programs, num_splits) = found.sizes, found.grid
        num_tiles, rest = divmod(shape[0], sizes["TAKEN"])
        assert rest == 0
        assert sizes["TAKEN"] <= sizes["ROWS"]
        assert sizes["TOKENS"] >= num_tokens
        columns = sizes["num_stages"] * sizes["DEPTH"]
        assert 2 * columns * (sizes["ROWS"] + sizes["TOKENS"]) <= on.shared_memory
        if sizes["TURNS"]:
            assert found.grid == (on.num_processors, 1)
            fair = -(-shape[0] // (sizes["ROWS"] * on.num_processors))
            assert -(-num_tiles // on.num_processors) == fair
        else:
            assert num_programs == num_tiles
        if num_splits > 1:
            programs = num_tiles * num_splits
            assert programs <= on.num_processors
            assert programs * sizes["ROWS"] * sizes["TOKENS"] <= len(parts)
            assert num_tiles <= len(counts)


def test_a_gpu_is_asked_for_its_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"multiprocessor_count": 114, "max_shared_mem": 99 * 1024}
    utils = SimpleNamespace(get_device_properties={71: given}.__getitem__)
    monkeypatch.setattr(tiling, "driver", SimpleNamespace(active=SimpleNamespace(utils=utils)))
    for capability, overlaps in (((8, 9), False), ((9, 0), True), ((12, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", {71: capability}.__getitem__)
        want = Gpu(num_processors=114, shared_memory=99 * 1024, prefetches=True, overlaps=overlaps)
        assert Gpu.of(torch.device("cuda", 71)) == want
    monkeypatch.setattr(torch.version, "hip", "7.0")
    want = evolve(want, prefetches=False, overlaps=False)
    assert Gpu.of(torch.device("cuda", 71)) == want


def test_nothing_is_fetched_ahead_where_there_is_no_ptx() -> None:
    for num_tokens in (1, 8, 64):
        assert tiling_of(num_tokens, WIDE).sizes["AHEAD"] > 0
        assert tiling_of(num_tokens, WIDE, OTHER).sizes["AHEAD"] == 0


@pytest.mark.parametrize(
    ("on", "shape", "most"),
    [
        *((H200, (128, 64), tiling.MOST_TOKENS), (A100, (128, 64), tiling.MOST_TOKENS)),
        *((SMALL, (128, 64), tiling.MATRIX_TOKENS), (H200, (96, 64), tiling.MATRIX_TOKENS)),
    ],
)
def test_blocks_need_memory_and_whole_tiles(on: Gpu, shape: tuple[int, int], most: int) -> None:
    assert tiling.most_tokens([weight(*shape)], on) == most


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("programs", [1, 8, 33, 34, 128, 512])
@pytest.mark.parametrize("on", GPUS)
def test_attention_is_cut_to_what_there_is(programs: int, head_dim: int, on: Gpu) -> None:
    cut = attend.cut_of(programs, head_dim, on)
    assert cut.programs <= attend.PROGRAMS_PER_PROCESSOR
    assert cut.block * head_dim <= attend.MOST_KEYS
