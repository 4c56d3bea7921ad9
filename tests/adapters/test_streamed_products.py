"""Streamed products are what torch's operations say, and models are cut evenly."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor
from torch.nn.functional import silu

from acceptor.adapters.random_weights import random_model
from acceptor.adapters.streamed_products import forms
from acceptor.adapters.streamed_products.product import (
    PROGRAM,
    Product,
    StreamedProducts,
    can_stream,
)
from kit.llama_shapes import TARGET
from kit.streamed_products_on_host import on_host

PROCESSORS = 132


@pytest.mark.parametrize(
    ("num_rows", "size", "rows", "splits"),
    [
        *((6144, 4096, 48, 1), (4096, 4096, 64, 2), (28672, 4096, 112, 1), (4096, 14336, 64, 2)),
        *((128256, 4096, 128, 1), (3072, 2048, 48, 2), (16384, 2048, 128, 1)),
        *((2048, 2048, 64, 4), (2048, 8192, 64, 4)),
    ],
)
def test_models_are_cut_evenly(num_rows: int, size: int, rows: int, splits: int) -> None:
    form = forms.form_of(64, num_rows, size, PROCESSORS)
    assert form is not None
    assert (form.rows, form.splits) == (rows, splits)
    is_small = rows < forms.FEW_ROWS and splits > 1
    most = forms.HALF if splits == forms.MOST_SPLITS else forms.MEMORY
    assert form.memory <= most - (forms.ROOM if is_small else 0)
    ctas = form.num_ctas(num_rows // rows, PROCESSORS)
    assert 120 <= ctas <= PROCESSORS
    assert form.units(size) * form.splits * form.blocks * forms.COLUMNS == size


@pytest.mark.parametrize(
    ("num_rows", "size"),
    [(1000, 4096), (4096, 4000), (8 * 1009, 4096), (1024, 2048), (784, 2048), (1456, 4096)],
)
def test_others_are_not_cut(num_rows: int, size: int) -> None:
    assert forms.form_of(64, num_rows, size, PROCESSORS) is None


@pytest.mark.parametrize("num_tokens", [9, 16, 17, 32, 33, 64])
def test_a_form_is_of_a_power_of_two_of_tokens_and_splits_the_same(num_tokens: int) -> None:
    form = forms.form_of(num_tokens, 4096, 4096, PROCESSORS)
    assert form is not None
    assert form.tokens in (16, 32, 64)
    assert num_tokens <= form.tokens < 2 * max(num_tokens, 9)
    assert form.splits == 2


def test_other_devices_and_dtypes_have_none() -> None:
    assert StreamedProducts.of(torch.device("cpu"), torch.bfloat16) is None
    assert not can_stream(torch.device("cuda"), torch.float32)


class AnyProducts:
    """Takes every product, and leaves so many parts."""

    def __init__(self) -> None:
        self.products: list[Product] = []

    def num_parts(self, num_tokens: int, weight: Tensor) -> int:
        return num_tokens + len(weight)

    def multiply(self, product: Product) -> int:
        self.products.append(product)
        return 7


def test_a_forward_multiplies_by_them_and_has_room_for_their_parts() -> None:
    forward = pytest.importorskip("acceptor.adapters.few_tokens.forward")
    output, down = torch.empty(64, 64, device="meta"), torch.empty(128, 64, device="meta")
    layer = SimpleNamespace(
        attention=SimpleNamespace(output=SimpleNamespace(weight=output)),
        mlp=SimpleNamespace(down=SimpleNamespace(weight=down)),
    )
    decoder: Any = SimpleNamespace(layers=[layer], embedding=output)
    streamed: Any = AnyProducts()
    few = forward.FewTokens(
        decoder, attend=None, most_tokens=64, parts=output, counts=output, streamed=streamed
    )
    assert few._most_parts(16) == 16 + 128
    hidden = forward.Hidden(sums=output, scaled=output, squares=output, num_parts=3)
    linear: Any = SimpleNamespace(weight=down, bias=None)
    norm: Any = SimpleNamespace(weight=output, eps=1e-5)
    assert few._multiply(output, linear, output, hidden, norm, add=True, every=2) == 7
    product = streamed.products[0]
    assert (product.weight is down, product.num_parts, product.way) == (True, 3, "ADD")
    assert product.every == 2


def product_of(
    num_tokens: int,
    num_rows: int,
    size: int,
    way: str,
    *,
    every: int = 1,
    bias: bool = False,
    device: str = "cpu",
) -> Product:
    """Random numbers; num_rows of the matrix."""
    torch.manual_seed(num_tokens + num_rows)
    out_rows = num_rows // 2 if way == "GATE" else num_rows

    def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(shape, device=device).to(dtype)

    out = random(num_tokens, out_rows)
    return Product(
        x=random(num_tokens * every, size),
        weight=random(num_rows, size) * size**-0.5,
        bias=random(num_rows) if bias else None,
        out=out,
        scaled=torch.zeros_like(out),
        gamma=random(out_rows),
        squares=torch.rand(80, num_tokens * every, device=device) * size / 40,
        num_parts=80,
        eps=1e-5,
        gate=way == "GATE",
        add=way == "ADD",
        every=every,
    )


def plainly(product: Product) -> Tensor:
    """What `out` becomes, by torch's operations in float32."""
    last = slice(product.every - 1, None, product.every)
    out = product.x[last].float() @ product.weight.float().t()
    if not product.add:
        size = product.x.shape[1]
        out *= torch.rsqrt(product.squares.sum(0)[last] / size + product.eps)[:, None]
    if product.bias is not None:
        out += product.bias.float()
    if product.gate:
        gate, up = out.chunk(2, 1)
        out = silu(gate) * up
    return out + product.out.float() if product.add else out


def expect_right(products: StreamedProducts, product: Product) -> None:
    want = plainly(product)
    num_parts = products.multiply(product)
    assert num_parts > 0
    # Hardly more is lost than by rounding what is exact, once.
    lost, least = (
        (out.float() - want).square().mean().sqrt() for out in (product.out, want.bfloat16())
    )
    assert lost <= 1.05 * least
    if product.add:
        assert num_parts == products.num_parts(len(product.out), product.weight)
        scaled = product.out.float() * product.gamma.float()
        assert (product.scaled.float() - scaled).abs().max() <= 0.01 * scaled.abs().max()
        squares = product.squares[:num_parts].sum(0)
        torch.testing.assert_close(squares, product.out.float().square().sum(1))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    ("num_tokens", "num_rows", "size", "way", "every", "bias", "waiting"),
    [
        *((64, 192, 512, "PLAIN", 1, False, 0), (41, 256, 256, "PLAIN", 3, True, 1)),
        *((16, 448, 512, "GATE", 1, False, 2), (60, 896, 256, "GATE", 1, True, 1)),
        *((64, 128, 512, "ADD", 1, False, 2), (20, 96, 512, "ADD", 1, True, 0)),
        *((9, 96, 1024, "PLAIN", 1, True, 1), (40, 768, 256, "ADD", 1, True, 1)),
        *((16, 64, 1024, "ADD", 1, True, 1), (9, 64, 512, "PLAIN", 2, True, 2)),
        *((32, 64, 4096, "ADD", 1, False, 2), (50, 64, 512, "GATE", 1, False, 0)),
    ],
)
def test_the_kernel_on_a_host_agrees_with_plain_operations(
    tmp_path: Path,
    num_tokens: int,
    num_rows: int,
    size: int,
    way: str,
    every: int,
    bias: bool,
    waiting: int,
) -> None:
    product = product_of(num_tokens, num_rows, size, way, every=every, bias=bias)
    with on_host(4, tmp_path, seed=num_rows, waiting_of_four=waiting) as products:
        expect_right(products, product)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["PLAIN", "GATE", "ADD"])
@pytest.mark.parametrize(("num_tokens", "size"), [(16, 4096), (64, 4096), (16, 2048), (32, 2048)])
def test_it_compiles_and_spills_nothing(way: str, num_tokens: int, size: int) -> None:
    pytest.importorskip("cupy_backends")
    form = forms.form_of(num_tokens, size, size, PROCESSORS)
    assert form is not None
    code, log = PROGRAM.compile(form.macros(way), "sm_90a")
    assert code
    assert " 0 bytes spill stores" in log


def products_on_gpu() -> StreamedProducts:
    products = StreamedProducts.of(torch.device("cuda"), torch.bfloat16)
    if products is None:
        pytest.skip("needs a Hopper and CuPy")
    return products


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("num_tokens", "num_rows", "size", "way", "every", "bias"),
    [
        *((64, 6144, 4096, "PLAIN", 1, False), (64, 4096, 4096, "ADD", 1, True)),
        *((50, 28672, 4096, "GATE", 1, True), (64, 4096, 14336, "ADD", 1, False)),
        *((16, 128256, 2048, "PLAIN", 2, False), (33, 128256, 4096, "PLAIN", 1, False)),
        *((16, 3072, 2048, "PLAIN", 1, True), (31, 4096, 4096, "ADD", 1, False)),
        *((9, 16384, 2048, "GATE", 1, False), (16, 4096, 14336, "ADD", 1, False)),
        *((16, 2048, 2048, "ADD", 1, False), (13, 2048, 8192, "ADD", 1, True)),
        *((32, 2048, 8192, "ADD", 1, False), (64, 2048, 2048, "ADD", 1, True)),
    ],
)
def test_a_gpu_says_what_plain_operations_say(
    num_tokens: int, num_rows: int, size: int, way: str, every: int, bias: bool
) -> None:
    arguments = (num_tokens, num_rows, size, way)
    one, other = (product_of(*arguments, every=every, bias=bias, device="cuda") for _ in range(2))
    products = products_on_gpu()
    expect_right(products, one)
    expect_right(products, other)
    assert torch.equal(one.out, other.out)
    assert torch.equal(one.scaled, other.scaled)
    assert torch.equal(one.squares, other.squares)


@pytest.mark.gpu
def test_products_begun_early_wait_for_what_they_read() -> None:
    products = products_on_gpu()
    first = product_of(64, 28672, 4096, "GATE", device="cuda")
    added = [product_of(64, 4096, 14336, "ADD", device="cuda") for _ in range(2)]
    chain = [evolve(product, x=first.out) for product in added]
    kept = [product.out.clone() for product in chain]

    def run() -> list[Tensor]:
        for product, old in zip(chain, kept, strict=True):
            product.out.copy_(old)
        for product in (first, *chain):
            products.multiply(product)
        return [product.out.clone() for product in chain]

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        want = run()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            got = run()
    for _ in range(50):
        first.out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(*pair) for pair in zip(want, got, strict=True))


@pytest.mark.gpu
def test_a_forward_with_them_says_what_one_without_says(tmp_path: Path) -> None:
    products_on_gpu()
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TARGET | {"num_hidden_layers": 2}), encoding="utf-8")
    model = random_model(file, dtype=torch.bfloat16, device="cuda")
    few = model._kernels
    assert few is not None
    assert few.streamed is not None
    cache, slots = model.new_cache(16, 256), torch.arange(16, device="cuda")
    ids = torch.randint(1000, (16, 4), device="cuda")
    positions = 9 + torch.arange(4, device="cuda").expand(16, -1)
    attend = few.attention_at(positions, slots)
    assert attend is not None
    ours, again, theirs = (
        one.forward(ids, attend, cache, last_only=False).float()
        for one in (few, few, evolve(few, streamed=None))
    )
    assert torch.equal(ours, again)
    assert (ours - theirs).abs().max() <= 0.05 * theirs.abs().max()
