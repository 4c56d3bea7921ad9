"""The kernels for few tokens say what torch's operations say, and compile for GPUs that overlap."""

import json
from pathlib import Path

import pytest
import torch
from attrs import evolve

from acceptor.adapters.random_weights import random_model
from kit.interpreted import compile_for, interpret
from kit.shapes import DRAFT, FOR_KERNELS

COMPILE_ALL = """
import torch
from acceptor.adapters.few_tokens import attend, forward, tiling
from attrs import evolve
from kit.few_tokens import GPU, MAX_LEN, model_of
tiling.NARROW, tiling.LEAST_DEPTH = evolve(tiling.NARROW, rows=16), 16
tiling.SHORT = evolve(tiling.SHORT, rows=16)
gpu = evolve(GPU, prefetches=True, overlaps=int(sys.argv[1]) >= 90)

compiled = set()

class CompileOnly:
    def __init__(self, kernel): self.kernel = kernel
    def __getitem__(self, grid):
        def compile(*args, **options):
            assert self.kernel.warmup(*args, grid=grid, **options).asm["cubin"]
            compiled.add((self.kernel.__name__, options.get("TURNS"), options.get("SPLITS", 1) > 1))
        return compile

tiling.matrix_kernel = CompileOnly(tiling.matrix_kernel)
tiling.block_kernel = CompileOnly(tiling.block_kernel)
attend.attention_kernel = CompileOnly(attend.attention_kernel)
forward.embed_kernel = CompileOnly(forward.embed_kernel)
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
def test_a_gpu_says_what_its_plain_operations_say(
    tmp_path: Path, num_reqs: int, num_tokens: int
) -> None:
    compare(tmp_path, num_reqs, num_tokens)


@pytest.mark.gpu
def test_programs_say_the_same_that_take_several_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = pytest.importorskip("acceptor.adapters.few_tokens.tiling")
    few_processors = evolve(gpu.Gpu.of(torch.device("cuda")), num_processors=5)
    monkeypatch.setattr(gpu.Gpu, "of", lambda device: few_processors)  # noqa: ARG005
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
