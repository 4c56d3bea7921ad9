"""What single operations of a step take: matrix products and attention at the shapes served.

Each is repeated in a graph over several copies of its operands, so that none is still in a cache.
This module refuses to add them up to a step: see `acceptor.app.engine.speed.served`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from torch import Tensor

from ....adapters.kv_cache import LayerCache
from ....adapters.slot_blocks import BLOCK_LEN, SlotBlocks
from ....adapters.spans import FEW_TOKENS, Spans
from .shapes import Sizes
from .timing import milliseconds, recorder

NUM_TOKENS = (1, 4, 64)
_OPERAND_BYTES = 400_000_000
"""Several times what the caches hold."""


def time_products(sizes: Sizes, device: torch.device) -> list[dict[str, Any]]:
    """One row per model, product and number of tokens."""
    return [
        {"model": name, "product": product, "tokens": tokens, "us": us, "bytes": 2 * rows * columns}
        for name, shape in sizes.shapes
        for product, (rows, columns) in products(shape).items()
        for tokens, us in _product_times(rows, columns, sizes.num_copies, device)
    ]


def products(shape: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Name -> (rows, columns) of the weights that a forward reads."""
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    head_dim = hidden // shape["num_attention_heads"]
    keys = head_dim * shape["num_key_value_heads"]
    return {
        "qkv": (hidden + 2 * keys, hidden),
        "output": (hidden, hidden),
        "gate and up": (2 * inner, hidden),
        "down": (hidden, inner),
        "LM head": (shape["vocab_size"], hidden),
    }


def _product_times(
    rows: int, columns: int, most_copies: int, device: torch.device
) -> Iterator[tuple[int, float]]:
    num_copies = max(2, min(most_copies, _OPERAND_BYTES // (2 * rows * columns) + 1))
    weights = [
        torch.randn(rows, columns, dtype=torch.bfloat16, device=device) for _ in range(num_copies)
    ]
    for num_tokens in NUM_TOKENS:
        hidden = torch.randn(num_tokens, columns, dtype=torch.bfloat16, device=device)

        def multiply(hidden: torch.Tensor = hidden) -> None:
            for weight in weights:
                F.linear(hidden, weight)

        yield num_tokens, _microseconds(multiply, device) / num_copies


def time_attention(sizes: Sizes, device: torch.device) -> list[dict[str, Any]]:
    """One row per model, number of requests, queries of each, and positions.

    Where a request has several queries, attended to one by one and together.
    """
    return [
        {"model": name, "requests": requests, "queries": queries, "positions": length, **times}
        for name, shape in sizes.shapes
        for requests in (1, 16)
        for queries in (1, 4)
        for length in sizes.lengths
        for times in [_attention_times(shape, requests, queries, length, device)]
    ]


def _attention_times(
    shape: dict[str, Any], num_reqs: int, num_queries: int, length: int, device: torch.device
) -> dict[str, float]:
    ways = {"us": FEW_TOKENS} | ({"together_us": 0} if num_queries > 1 else {})
    return {
        way: _attention_time(shape, num_reqs, num_queries, length, few_tokens, device)
        for way, few_tokens in ways.items()
    }


def _attention_time(
    shape: dict[str, Any],
    num_reqs: int,
    num_queries: int,
    length: int,
    few_tokens: int,
    device: torch.device,
) -> float:
    cache, queries, positions = _operands(shape, num_reqs, num_queries, length, device)
    slot_ids, max_len = torch.arange(num_reqs, device=device), cache.memory.shape[1]
    spans = Spans.of(positions, slot_ids, max_len, few_tokens)
    return _each_us(lambda: spans.attend(queries, cache, None), device)


def time_flex_attention(sizes: Sizes, row: dict[str, Any], device: torch.device) -> float:
    """flex_attention's microseconds for a row of `time_attention`."""
    shape = dict(sizes.shapes)[row["model"]]
    num_reqs = row["requests"]
    cache, queries, positions = _operands(shape, num_reqs, row["queries"], row["positions"], device)
    slot_ids, max_len = torch.arange(num_reqs, device=device), cache.memory.shape[1]
    blocks = SlotBlocks.of(positions, slot_ids, max_len)
    return _each_us(lambda: blocks.attend(queries, cache, None), device)


def _operands(
    shape: dict[str, Any], num_reqs: int, num_queries: int, length: int, device: torch.device
) -> tuple[LayerCache, Tensor, Tensor]:
    """A filled cache, queries at its end, and their positions."""
    heads, kv_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
    head_dim, max_len = shape["hidden_size"] // heads, (length // BLOCK_LEN + 1) * BLOCK_LEN
    memory = (num_reqs, max_len, 2 * kv_heads, head_dim)
    asked = (num_reqs * num_queries, heads, head_dim)
    cache, queries = (
        torch.randn(size, dtype=torch.bfloat16, device=device) for size in (memory, asked)
    )
    positions = torch.arange(length - num_queries, length, device=device)
    return LayerCache(cache), queries, positions.repeat(num_reqs, 1)


def _each_us(attend: Callable[[], Tensor], device: torch.device) -> float:
    repeats = 10

    def attend_often() -> None:
        for _ in range(repeats):
            attend()

    return _microseconds(attend_often, device) / repeats


def _microseconds(action: Callable[[], None], device: torch.device) -> float:
    with torch.inference_mode():
        return 1000 * milliseconds(recorder(device)(action), device)
