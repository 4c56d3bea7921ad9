"""Tiny draft heads in their published formats, and their logits by plain arithmetic.

Written from the formats' description alone: every row is computed anew for every draft token, and
nothing is cached.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from attrs import evolve, frozen
from safetensors.torch import save_file
from torch import Tensor

from kit.shapes import TINY

SHAPE: dict[str, Any] = TINY | {"model_type": "llama", "num_hidden_layers": 1, "head_dim": 6}
SHAPE |= {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048}
SPECULATORS: Mapping[str, Any] = {"norm_before_residual": True, "target_hidden_size": 32}
"""The fields outside the layer of a head in speculators' format."""

TAPS = "eagle_aux_hidden_state_layer_ids"
THETA = 10_000.0


@frozen(eq=False, kw_only=True)
class HeadFiles:
    """The content of a head's directory.

    Attributes:
        config: that of config.json.
        tensors: by their published names.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def save(self, directory: Path, *, pickled: bool = False) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(dict(self.config)), encoding="utf-8")
        if pickled:
            torch.save(dict(self.tensors), directory / "pytorch_model.bin")
        else:
            save_file(dict(self.tensors), directory / "model.safetensors")
        return directory

    @property
    def is_nested(self) -> bool:
        """Whether it is in speculators' format."""
        return "transformer_layer_config" in self.config

    @property
    def layer(self) -> Mapping[str, Any]:
        """The part of config.json about the layer."""
        layer: Mapping[str, Any] = self.config.get("transformer_layer_config", self.config)
        return layer


def _layer_shapes(layer: Mapping[str, Any], num_inputs: int) -> dict[str, tuple[int, ...]]:
    size, inner, dim = layer["hidden_size"], layer["intermediate_size"], layer["head_dim"]
    queries, keys = layer["num_attention_heads"] * dim, layer["num_key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (queries, num_inputs),
        "self_attn.k_proj.weight": (keys, num_inputs),
        "self_attn.v_proj.weight": (keys, num_inputs),
        "self_attn.o_proj.weight": (size, queries),
        "post_attention_layernorm.weight": (size,),
        "mlp.gate_proj.weight": (inner, size),
        "mlp.up_proj.weight": (inner, size),
        "mlp.down_proj.weight": (size, inner),
    }
    if layer["model_type"] == "qwen3":
        shapes |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
    return shapes


def _random(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {
        name: 1 + 0.3 * one if name.endswith("norm.weight") else one * one.shape[-1] ** -0.5
        for name, one in drawn.items()
    }


def eagle(*, bias: bool | None = False, seed: int = 0, **changes: Any) -> HeadFiles:
    """EAGLE's format; with bias None its config does not say that there is one."""
    layer = SHAPE | changes
    size = layer["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (size, 2 * size)}
    shapes |= {} if bias is False else {"fc.bias": (size,)}
    shapes |= {"layers.0." + name: one for name, one in _layer_shapes(layer, size).items()}
    config = layer if bias is None else layer | {"bias": bias}
    return HeadFiles(config=config, tensors=_random(shapes, seed))


def eagle3(
    *,
    target_size: int = 32,
    draft_vocab_size: int | None = None,
    own_embedding: bool = False,
    num_taps: int = 3,
    nested: Mapping[str, Any] | None = None,
    seed: int = 0,
    **changes: Any,
) -> HeadFiles:
    """EAGLE-3 in EAGLE's own format or, with the fields outside the layer, in speculators'."""
    layer = SHAPE | changes
    size, vocab_size = layer["hidden_size"], layer["vocab_size"]
    num_ids = draft_vocab_size or vocab_size
    outside = layer if nested is None else nested
    shapes: dict[str, tuple[int, ...]] = {
        "hidden_norm.weight": (size,),
        "input_layernorm.weight": (size,),
        **_layer_shapes(layer, 2 * size),
    }
    prefix = "midlayer." if nested is None else "layers.0."
    shapes = {prefix + name: one for name, one in shapes.items()}
    shapes |= {"fc.weight": (size, num_taps * target_size), "norm.weight": (size,)}
    shapes |= {"lm_head.weight": (num_ids, size)}
    if own_embedding:
        shapes["embed_tokens.weight"] = (vocab_size, size)
    if outside.get("norm_before_fc"):
        shapes["input_norm.weight"] = (num_taps * target_size,)
    if outside.get("fc_norm"):
        shapes |= {f"fc_norm.{tap}.weight": (target_size,) for tap in range(num_taps)}
    tensors = _random(shapes, seed)
    if draft_vocab_size is not None:
        chosen = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(seed))
        target_ids = chosen[:num_ids].sort().values
        tensors["d2t"] = target_ids - torch.arange(num_ids)
        tensors["t2d"] = torch.zeros(vocab_size, dtype=torch.bool)
        tensors["t2d"][target_ids] = True
    more = {"draft_vocab_size": num_ids}
    if nested is None:
        return HeadFiles(config=layer | more, tensors=tensors)
    config = {"speculators_model_type": "eagle3", "transformer_layer_config": layer, **more}
    return HeadFiles(config=config | dict(nested), tensors=tensors)


@frozen(eq=False, kw_only=True)
class Arithmetic:
    """A head, row by row.

    Attributes:
        files: the head's.
        embedding, lm_head: the target's weights.
        flipped: the switches that are read wrongly.
    """

    files: HeadFiles
    embedding: Tensor
    lm_head: Tensor
    flipped: frozenset[str] = frozenset()

    def wrong(self, switch: str) -> "Arithmetic":
        """The same head with one switch inverted."""
        return evolve(self, flipped=frozenset({switch}))

    def _is(self, switch: str) -> bool:
        config = self.files.config
        inside = config.get("eagle_config", {}).get(switch, False)
        return bool(config.get(switch, inside)) != (switch in self.flipped)

    @property
    def is_eagle3(self) -> bool:
        """Whether it is EAGLE-3; else it is EAGLE."""
        return "norm.weight" in self.files.tensors

    def draft_logits(
        self, hidden: Sequence[Tensor], known: Sequence[int], drafts: Sequence[int]
    ) -> Tensor:
        """Logits of every draft token, given those before it: [len(drafts), draft_vocab_size].

        Args:
            hidden: for each tap, [at least len(known) - 1, target's hidden_size], of known tokens;
                EAGLE's one is behind the final norm.
            known: all of them.
            drafts: those that were drawn.
        """
        size = self.files.layer["hidden_size"]
        features = self._fuse([one[: len(known) - 1] for one in hidden])
        token_ids, logits = list(known[1:]), []
        for token_id in drafts:
            latest = torch.zeros(1, size)
            if token_ids:
                latest = self._layer(features, self._embed(token_ids))[-1:]
            logits.append(self._head(latest))
            features = torch.cat((features, latest))
            token_ids.append(token_id)
        return torch.cat(logits)

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        weight, eps = self.files.tensors[name + ".weight"], self.files.layer["rms_norm_eps"]
        scale: Tensor = (hidden.square().mean(-1, keepdim=True) + eps).rsqrt()
        return hidden * scale * weight

    def _times(self, name: str, hidden: Tensor) -> Tensor:
        return hidden @ self.files.tensors[name + ".weight"].T

    def _embed(self, token_ids: Sequence[int]) -> Tensor:
        own = self.files.tensors.get("embed_tokens.weight", self.embedding)
        return (self.embedding if "embed_tokens" in self.flipped else own)[list(token_ids)]

    def _fuse(self, hidden: Sequence[Tensor]) -> Tensor:
        if not self.is_eagle3:
            return hidden[0]
        if self._is("fc_norm"):
            hidden = [self._norm(f"fc_norm.{tap}", one) for tap, one in enumerate(hidden)]
        together = torch.cat(tuple(hidden), -1)
        if self._is("norm_before_fc"):
            together = self._norm("input_norm", together)
        return self._times("fc", together)

    def _layer(self, features: Tensor, embedded: Tensor) -> Tensor:
        if not self.is_eagle3:
            order = (features, embedded) if "order" in self.flipped else (embedded, features)
            merged = self._times("fc", torch.cat(order, -1))
            merged = merged + self.files.tensors.get("fc.bias", torch.zeros(()))
            return self._rest(merged, merged, "layers.0.")
        prefix = "layers.0." if self.files.is_nested else "midlayer."
        normalised = self._norm(prefix + "hidden_norm", features)
        inputs = [self._norm(prefix + "input_layernorm", embedded), normalised]
        if "order" in self.flipped:
            inputs.reverse()
        residual = normalised if self._is("norm_before_residual") else features
        hidden = self._rest(torch.cat(inputs, -1), residual, prefix)
        return self._norm("norm", hidden) if self._is("norm_output") else hidden

    def _rest(self, inputs: Tensor, residual: Tensor, prefix: str) -> Tensor:
        hidden = residual + self._attend(inputs, prefix + "self_attn.")
        normalised = self._norm(prefix + "post_attention_layernorm", hidden)
        gate = F.silu(self._times(prefix + "mlp.gate_proj", normalised))
        up = self._times(prefix + "mlp.up_proj", normalised)
        return hidden + self._times(prefix + "mlp.down_proj", gate * up)

    def _attend(self, inputs: Tensor, prefix: str) -> Tensor:
        layer, num_rows = self.files.layer, len(inputs)
        dim = layer["head_dim"]
        queries, keys, values = (
            self._times(f"{prefix}{side}_proj", inputs).view(num_rows, -1, dim) for side in "qkv"
        )
        if layer["model_type"] == "qwen3":
            queries = self._norm(prefix + "q_norm", queries)
            keys = self._norm(prefix + "k_norm", keys)
        queries, keys = self._turn(queries), self._turn(keys)
        group = queries.shape[1] // keys.shape[1]
        keys, values = (one.repeat_interleave(group, 1) for one in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", queries, keys) * dim**-0.5
        scores = scores.masked_fill(torch.ones(num_rows, num_rows).triu(1).bool(), -torch.inf)
        found = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
        return self._times(prefix + "o_proj", found.flatten(1))

    def _turn(self, heads: Tensor) -> Tensor:
        theta = 5e5 if "rope_theta" in self.flipped else self.files.layer.get("rope_theta", THETA)
        num_rows, _, dim = heads.shape
        frequencies = theta ** (-torch.arange(0, dim, 2) / dim)
        angles = (torch.arange(num_rows)[:, None] * frequencies)[:, None]
        first, second = heads.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def _head(self, features: Tensor) -> Tensor:
        if not self.is_eagle3:
            return features @ self.lm_head.T
        if not self._is("norm_output"):
            features = self._norm("norm", features)
        return self._times("lm_head", features)
