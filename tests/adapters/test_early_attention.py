"""Attention in CUDA C++ says what float32 says, on a host and beside Triton's on a GPU."""

import ctypes
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.adapters.early_attention import attend as early
from acceptor.adapters.kv_cache import LayerCache
from acceptor.adapters.rope import Rope, rotate
from acceptor.adapters.streamed_products.forms import ROOM
from acceptor.adapters.transformer import Attention

MAX_LEN = 1152
_FOLDERS = ("../cuda_on_host", "cuda_on_host", "one_launch_on_host", "early_attention_on_host")


@frozen(eq=False, kw_only=True)
class Case:
    """What a layer is given; a request's slot is another one than its number."""

    qkv: Tensor
    cache: LayerCache
    angles: Tensor
    positions: Tensor
    slot_ids: Tensor

    @property
    def attention(self) -> Any:
        """Nothing of it is read but its kind."""
        plain = {"window": None, "head_norms": None, "qkv": None, "output": None}
        return Attention(head_dim=early.HEAD_DIM, **plain)  # type: ignore[arg-type]

    def again(self) -> "Case":
        """With a cache of its own."""
        return evolve(self, cache=LayerCache(self.cache.memory.clone()))

    def by(self, attention: early.EarlyAttention) -> Tensor | None:
        """What its kernel finds."""
        scale = math.log2(math.e) / math.sqrt(early.HEAD_DIM)
        where = {"positions": self.positions, "slot_ids": self.slot_ids}
        return attention.attend(self.attention, self.qkv, self.cache, **where, scale=scale)


def case_of(
    firsts: list[int], num_tokens: int, key_heads: int, group: int, device: str = "cpu"
) -> Case:
    """Random numbers, infinite where nothing is yet; a request's tokens are at one place."""
    torch.manual_seed(len(firsts) * num_tokens)
    positions = torch.tensor(firsts)[:, None] + torch.arange(num_tokens)
    positions[1] = positions[1, 0]
    shape = (len(firsts) + 1, MAX_LEN, 2 * key_heads, early.HEAD_DIM)
    slot_ids, cache = torch.randperm(shape[0])[: len(firsts)], torch.randn(shape).bfloat16()
    for slot, first in zip(slot_ids, firsts, strict=True):
        cache[slot, first:] = torch.inf
    width = (group + 2) * key_heads * early.HEAD_DIM
    return Case(
        qkv=torch.randn(positions.numel(), width).bfloat16().to(device),
        cache=LayerCache(cache.to(device)),
        angles=Rope(head_dim=early.HEAD_DIM, theta=1e4).table(MAX_LEN).bfloat16().to(device),
        positions=positions.to(device),
        slot_ids=slot_ids.to(device),
    )


def plainly(case: Case) -> Tensor:
    """By torch's operations in float32; the cache is written as it should be."""
    num_reqs, num_tokens = case.positions.shape
    key_heads = case.cache.memory.shape[2] // 2
    heads = case.qkv.float().view(num_reqs, num_tokens, -1, early.HEAD_DIM)
    cos, sin = case.angles.float()[case.positions].unbind(2)
    turned = rotate(heads[:, :, :-key_heads], cos[:, :, None], sin[:, :, None])
    new = torch.cat((turned[:, :, -key_heads:], heads[:, :, -key_heads:]), 2).bfloat16()
    out = []
    for request, (slot, places) in enumerate(zip(case.slot_ids, case.positions, strict=True)):
        for token, place in enumerate(places):
            case.cache.memory[slot, place] = new[request, token]
        keys, values = case.cache.memory[slot].float().transpose(0, 1).chunk(2)
        queries = turned[request, :, :-key_heads].view(num_tokens, key_heads, -1, early.HEAD_DIM)
        scores = torch.einsum("tkgd,kpd->tkgp", queries, keys) / math.sqrt(early.HEAD_DIM)
        hidden = torch.arange(MAX_LEN, device=places.device) > places[:, None]
        weights = scores.masked_fill(hidden[:, None, None], -torch.inf).softmax(-1)
        out.append(
            torch.einsum("tkgp,kpd->tkgd", weights, values.nan_to_num(0, 0, 0)).reshape(
                num_tokens, -1
            )
        )
    return torch.cat(out)


def expect_right(got: Tensor | None, want: Tensor, case: Case, wanted: Case) -> float:
    """What is lost, beside rounding what is exact; caches differ by what angles round."""
    assert got is not None
    torch.testing.assert_close(case.cache.memory, wanted.cache.memory, rtol=0.01, atol=1e-2)
    written = (case.cache.memory != wanted.cache.memory).any(-1).any(-1).nonzero().tolist()
    slots = case.slot_ids[:, None].expand_as(case.positions)
    new = torch.stack((slots, case.positions), -1).flatten(0, 1).tolist()
    assert all(place in new for place in written)
    lost, least = ((out.float() - want).square().mean().sqrt() for out in (got, want.bfloat16()))
    assert lost <= 4 * least
    return float(lost)


@frozen(eq=False)
class KernelOnHost:
    """As `Kernel`."""

    macros: tuple[str, ...]
    folder: Path
    waiting: int
    launches: list[int] = field(factory=list)

    def launch(self, num_ctas: int, arguments: bytes, device: torch.device) -> None:
        del device
        library = self.folder / "early_attention.so"
        for name in _FOLDERS:
            shutil.copytree(Path(__file__).parent / name, self.folder, dirs_exist_ok=True)
        (self.folder / early.PROGRAM.file).write_text(early.PROGRAM.sources[early.PROGRAM.file])
        options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing"]
        options += ["-fcf-protection=none", *self.macros, f"-DCTA_THREADS={early.THREADS}"]
        source = str(self.folder / "early_attention_on_host.cpp")
        command = ["g++", *options, f"-DCLUSTERS={num_ctas}", source, "-o", str(library)]
        subprocess.run(command, check=True)
        ctypes.CDLL(str(library)).run_attend(arguments, 3, self.waiting)
        self.launches.append(num_ctas)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    ("num_tokens", "group", "waiting"), [(1, 4, 0), (2, 4, 1), (2, 1, 0), (4, 2, 2)]
)
def test_the_kernel_on_a_host_agrees_with_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_tokens: int, group: int, waiting: int
) -> None:
    case = case_of([0, 5, 1, 31, 130, 255, 256, 257, 1100], num_tokens, 2, group)
    wanted = case.again()

    def load(*arguments: Any, **_: object) -> Any:
        return KernelOnHost(arguments[2], tmp_path, waiting)

    monkeypatch.setattr(early, "load_kernel", load)
    expect_right(case.by(early.EarlyAttention(case.angles)), plainly(wanted), case, wanted)


def test_others_are_left_to_another_kernel() -> None:
    attention = early.EarlyAttention(torch.empty(4, 2, 64))
    for few in (case_of([3] * 8, 1, 2, 4), case_of([3] * 9, 3, 2, 4)):
        assert few.by(attention) is None
    assert early.EarlyAttention.of(torch.empty(4, 2, 64, dtype=torch.bfloat16)) is None
    assert early.MEMORY <= ROOM - 2048


@pytest.mark.slow
def test_it_compiles_and_spills_nothing() -> None:
    pytest.importorskip("cupy_backends")
    code, log = early.PROGRAM.compile(early.macros(8, 4), "sm_90a")
    assert code
    assert " 0 bytes spill stores" in log


@pytest.mark.gpu
@pytest.mark.parametrize(("num_reqs", "num_tokens"), [(9, 1), (16, 1), (16, 2), (32, 2)])
def test_a_gpu_loses_no_more_than_tritons_kernel(num_reqs: int, num_tokens: int) -> None:
    firsts = [(137 * i + 250) % 1100 for i in range(num_reqs)]
    case = case_of(firsts, num_tokens, 8, 4, "cuda")
    attention = early.EarlyAttention.of(case.angles)
    if attention is None:
        pytest.skip("needs a Hopper and CuPy")
    few_tokens = pytest.importorskip("acceptor.adapters.few_tokens.attend")
    triton = evolve(few_tokens.Attend.of(case.angles, 4, overlaps=True), early=None)
    again, theirs, wanted = case.again(), case.again(), case.again()
    where = {"positions": case.positions, "slot_ids": case.slot_ids}
    want, got = plainly(wanted), case.by(attention)
    others = triton(case.attention, case.qkv, theirs.cache, **where)
    ours = expect_right(got, want, case, wanted)
    assert ours <= 1.05 * expect_right(others, want, theirs, wanted)
    same = again.by(attention)
    assert got is not None
    assert same is not None
    assert torch.equal(got, same)
    assert torch.equal(case.cache.memory, again.cache.memory)
