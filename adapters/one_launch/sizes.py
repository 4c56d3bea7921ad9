"""For which models and tokens there is a kernel, and how large its pieces are.

This module refuses to touch a GPU.
"""

from torch import Tensor

from ..transformer import Attention, Decoder, Layer, Linear

NUM_CLUSTERS, CTAS_OF_CLUSTER = 15, 8
"""All that an H200 runs at once."""

THREADS = 384
MEMORY = 227 * 1024
"""Of a CTA, shared, in bytes: as much as such GPUs have."""

MOST_TOKENS = 2
"""Of a request. Attention takes one after the other."""

HIDDEN, INNER, QUERY_HEADS, KEY_HEADS, HEAD_DIM = 2048, 8192, 32, 8, 64
"""Of the only models that the kernel is written for."""

TILE_ROWS = 16
STAGES_AHEAD = 4
"""Of what streams through shared memory: on their way at once."""

HEAD_BLOCKS = 7
"""Of 64 columns of the down projection, that a cluster with a key head takes, or one more."""

_SHAPES = (
    ((QUERY_HEADS + 2 * KEY_HEADS) * HEAD_DIM, HIDDEN),
    (HIDDEN, QUERY_HEADS * HEAD_DIM),
    (2 * INNER, HIDDEN),
    (HIDDEN, INNER),
)


def fits(decoder: Decoder, angles: Tensor) -> bool:
    """Whether the kernel computes such a model.

    Args:
        decoder: of any size.
        angles: see `Rope.table`.
    """
    heads_fit = angles.shape[-1] == HEAD_DIM and len(decoder.lm_head.weight) % TILE_ROWS == 0
    return (
        heads_fit
        and _is_plain(decoder.lm_head)
        and decoder.lm_head.weight.shape[1] == HIDDEN
        and all(_layer_fits(layer) for layer in decoder.layers)
    )


def _layer_fits(layer: Layer) -> bool:
    return _attends_plainly(layer.attention) and all(
        _is_plain(linear) and tuple(linear.weight.shape) == shape
        for linear, shape in zip(linears_of(layer), _SHAPES, strict=True)
    )


def linears_of(layer: Layer) -> tuple[Linear, Linear, Linear, Linear]:
    """In the order in which they are needed."""
    return layer.attention.qkv, layer.attention.output, layer.mlp.gate_up, layer.mlp.down


def _is_plain(linear: Linear) -> bool:
    return linear.bias is None and linear.weight.is_contiguous()


def _attends_plainly(attention: Attention) -> bool:
    return attention.head_norms is None and attention.window is None


def macros(num_tokens: int, num_layers: int, vocab_size: int) -> tuple[str, ...]:
    """What the kernel is compiled with, for forwards of so many tokens at most."""
    named = {
        "MOST_TOKENS": num_tokens,
        "LAYERS": num_layers,
        "VOCAB_SIZE": vocab_size,
        "CLUSTERS": NUM_CLUSTERS,
        "HEAD_BLOCKS": HEAD_BLOCKS,
        "STAGES_AHEAD": STAGES_AHEAD,
        "SHARED_BYTES": MEMORY,
    }
    return tuple(f"-D{name}={value}" for name, value in named.items())
