"""An EAGLE-3 head in training: its weights, its losses, and its files."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from attrs import frozen
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig

from acceptor.adapters.draft_heads.head_config import TAPS
from acceptor.adapters.rope import Rope, rotate

LATER = 0.8
"""The weight of a place of the draft relative to the place before it."""

LAYER = "midlayer."
_NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")


def taps_of(num_layers: int) -> tuple[int, ...]:
    """The target layers after which a head reads hidden states; with few layers, the last ones."""
    if num_layers < 7:
        return tuple(range(num_layers))[-3:]
    return 2, num_layers // 2, num_layers - 3


@torch.no_grad()
def _scales(target: Any) -> Tensor:
    """The scales of the target's final norm; ones if it has another name than norm."""
    signs = torch.ones(target.hidden_size, dtype=target.dtype, device=target.device)
    # Of mean square 1 and mean 0, so every family's norm leaves them unchanged but for its scales.
    signs[1::2] = -1
    norm = getattr(target, "norm", None)
    return signs * (signs if norm is None else norm(signs))


@frozen(eq=False, kw_only=True)
class Learner:
    """A head in training.

    Attributes:
        config: its config.json.
        target: the target that it learns from.
        target_ids: [draft_vocab_size], ascending.
        weights: by their published names, in float32.
    """

    config: Mapping[str, Any]
    target: Any
    target_ids: Tensor
    weights: dict[str, Tensor]

    @classmethod
    def new(cls, directory: Path, target: Any, target_ids: Tensor, seed: int) -> "Learner":
        """A head as wide as its target, which at first passes the target's highest tap on."""
        # Families have different names for the same weights.
        theirs = AutoConfig.from_pretrained(directory, local_files_only=True).get_text_config()
        size, heads = target.hidden_size, theirs.num_attention_heads
        kv_heads, taps = getattr(theirs, "num_key_value_heads", heads), taps_of(target.num_layers)
        inner = getattr(theirs, "intermediate_size", None) or 4 * size
        config: dict[str, Any] = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": size,
            "intermediate_size": inner,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": getattr(theirs, "head_dim", None) or size // heads,
            "num_hidden_layers": 1,
            "rms_norm_eps": getattr(theirs, "rms_norm_eps", 1e-5),
            "rope_theta": 10_000.0,
            "max_position_embeddings": target.max_model_len,
            "vocab_size": target.vocab_size,
            "draft_vocab_size": len(target_ids),
            "dtype": "bfloat16",
        }
        if target.num_layers < 7:
            config["eagle_config"] = {TAPS: list(taps)}
        wide, dim = 2 * size, config["head_dim"]
        generator = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int, scale: float = 1.0) -> Tensor:
            return torch.randn(rows, columns, generator=generator) * (scale / math.sqrt(columns))

        weights = {
            "fc.weight": matrix(size, len(taps) * size, 0.1),
            "norm.weight": _scales(target).float(),
            "lm_head.weight": target.lm_head.weight[target_ids.to(target.device)].float(),
            **{LAYER + f"{name}.weight": torch.ones(size) for name in _NORMS},
            LAYER + "self_attn.q_proj.weight": matrix(heads * dim, wide),
            LAYER + "self_attn.k_proj.weight": matrix(kv_heads * dim, wide),
            LAYER + "self_attn.v_proj.weight": matrix(kv_heads * dim, wide),
            LAYER + "self_attn.o_proj.weight": matrix(size, heads * dim, 0.3),
            LAYER + "mlp.gate_proj.weight": matrix(inner, size),
            LAYER + "mlp.up_proj.weight": matrix(inner, size),
            LAYER + "mlp.down_proj.weight": matrix(size, inner, 0.3),
        }
        weights["fc.weight"][:, -size:] += torch.eye(size)
        made = {
            # A network of transformers wants gradients of its own weights.
            name: weight.detach().to(target.device).contiguous().requires_grad_()
            for name, weight in weights.items()
        }
        return cls(config=config, target=target, target_ids=target_ids, weights=made)

    def loss(self, token_ids: Tensor, num_places: int) -> tuple[Tensor, list[float]]:
        """The loss over text [num_rows, context], and the share of drafts that are accepted."""
        target, device = self.target, self.target.device
        num_rows, context = token_ids.shape
        with torch.no_grad():
            scores = target.forward(
                token_ids,
                torch.arange(context, device=device).expand(num_rows, -1),
                target.new_cache(num_rows, context),
                torch.arange(num_rows, device=device),
                taps=taps_of(target.num_layers),
            )
            probs = scores.logits.softmax(-1, dtype=torch.float32)
            probs = probs[..., self.target_ids.to(device)]
        total, overlaps = torch.zeros((), device=device), []
        length = context - num_places
        for place, logits in enumerate(self.unroll(scores.hidden, token_ids, num_places)):
            log_q = logits.float().log_softmax(-1)
            wanted = probs[:, place + 1 : place + 1 + length]
            total = total - LATER**place * (wanted * log_q).sum(-1).mean()
            overlaps.append(float(torch.minimum(wanted, log_q.detach().exp()).sum(-1).mean()))
        return total, overlaps

    def unroll(
        self, hidden: Sequence[Tensor], token_ids: Tensor, num_places: int
    ) -> Iterator[Tensor]:
        """Logits [num_rows, context - num_places, draft_vocab_size] of each place of a draft.

        Row i of place p has read tokens up to i + 1 + p, and hidden states up to i.
        """
        length = token_ids.shape[1] - num_places
        features = self._times("fc", torch.cat([one[:, :length].float() for one in hidden], -1))
        written: list[tuple[Tensor, Tensor]] = []
        for place in range(num_places):
            read = token_ids[:, place + 1 : place + 1 + length]
            embedded = self.target.embedding.detach()[read].float()
            features = self._layer(features, embedded, written)
            yield self._times("lm_head", self._norm("norm", features))

    def _layer(
        self, features: Tensor, embedded: Tensor, written: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        inputs = (
            self._norm(LAYER + "input_layernorm", embedded),
            self._norm(LAYER + "hidden_norm", features),
        )
        hidden = features + self._attend(torch.cat(inputs, -1), written)
        normalised = self._norm(LAYER + "post_attention_layernorm", hidden)
        gate = F.silu(self._times(LAYER + "mlp.gate_proj", normalised))
        up = self._times(LAYER + "mlp.up_proj", normalised)
        return hidden + self._times(LAYER + "mlp.down_proj", gate * up)

    def _attend(self, inputs: Tensor, written: list[tuple[Tensor, Tensor]]) -> Tensor:
        """A row sees the first place's rows up to its own, and only its own row of later places."""
        place, (num_rows, length, _), dim = len(written), inputs.shape, self.config["head_dim"]
        queries, keys, values = (
            self._times(f"{LAYER}self_attn.{side}_proj", inputs).view(num_rows, length, -1, dim)
            for side in "qkv"
        )
        table = Rope(head_dim=dim, theta=self.config["rope_theta"]).table(place + length)
        cos, sin = table[place:, :, None].to(inputs.device).unbind(1)
        queries, keys = rotate(queries, cos, sin), rotate(keys, cos, sin)
        group = queries.shape[2] // keys.shape[2]
        written.append((keys.repeat_interleave(group, 2), values.repeat_interleave(group, 2)))
        scores = torch.einsum("rqhd,rkhd->rhqk", queries, written[0][0])
        unseen = torch.ones(length, length, dtype=torch.bool, device=inputs.device).triu(1)
        own = [torch.einsum("rqhd,rqhd->rhq", queries, key)[..., None] for key, _ in written[1:]]
        shares = torch.cat((scores.masked_fill(unseen, -torch.inf), *own), -1) * dim**-0.5
        shares = shares.softmax(-1)
        found = torch.einsum("rhqk,rkhd->rqhd", shares[..., :length], written[0][1])
        for later, (_, value) in enumerate(written[1:]):
            found = found + shares[..., length + later].transpose(1, 2)[..., None] * value
        return self._times(LAYER + "self_attn.o_proj", found.flatten(2))

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        weight = self.weights[name + ".weight"]
        return F.rms_norm(hidden, weight.shape, weight, self.config["rms_norm_eps"])

    def _times(self, name: str, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weights[name + ".weight"])

    def save(self, out: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Write config.json and model.safetensors."""
        tensors = {name: one.detach().to("cpu", dtype) for name, one in self.weights.items()}
        if len(self.target_ids) < self.target.vocab_size:
            tensors["d2t"] = self.target_ids - torch.arange(len(self.target_ids))
            tensors["t2d"] = torch.zeros(self.target.vocab_size, dtype=torch.bool)
            tensors["t2d"][self.target_ids] = True
        save_file(tensors, out / "model.safetensors")
        text = json.dumps(dict(self.config), indent=1) + "\n"
        (out / "config.json").write_text(text, encoding="utf-8")
