"""Loads a draft head from a directory, for the target that it runs on.

Its file is safetensors, or a pickle like those of EAGLE's first heads.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from ...core.errors import UnavailableError
from ..attention import StepPlanner
from ..checkpoint import FLOAT_DTYPES, INDEX_FILE, PICKLE, SINGLE_FILE, Checkpoint, Entry, Shape
from ..error_text import one_line, unfit
from ..json_object import JsonObject, read_json
from ..language_model import TransformerModel
from ..loader import AnyModel
from ..model_config import ModelConfig
from ..transformer import RMSNorm
from ..weights import (
    ATTENTION_NORM,
    DRAFT_TO_TARGET,
    MLP_NORM,
    RandomTensors,
    Tensors,
    WeightReader,
    expected_tensors,
    read_draft_ids,
)
from .eagle import EagleLayer, Fusion, Merge, SideBySide
from .head import Head
from .head_config import (
    RAW_LAYER,
    TAPS,
    MtpSwitches,
    read_eagle3_layer,
    read_layer,
    read_switches,
    read_taps,
)


def open_head(directory: Path) -> Checkpoint:
    """The tensors of a head, by name; a pickle with anything else in it is an error."""
    file = directory / PICKLE
    is_safe = any((directory / name).is_file() for name in (SINGLE_FILE, INDEX_FILE))
    if is_safe or not file.is_file():
        return Checkpoint.open(directory)
    try:
        # Runs no code: yields only tensors and plain containers. Old files are not archives.
        how: dict[str, Any] = {"map_location": "cpu", "mmap": is_zipfile(file)}
        tensors = torch.load(file, weights_only=True, **how)
    except Exception as error:  # noqa: BLE001, a damaged pickle may fail in any way
        raise unfit(file, "tensors", one_line(error) or type(error).__name__) from None
    if not isinstance(tensors, dict):
        raise unfit(file, "tensors by name", type(tensors).__name__)
    for name, one in tensors.items():
        if not _is_whole(one):
            where = f"{file}: {one_line(name)}"
            raise unfit(where, "a tensor with all its values", type(one).__name__)
    spellings = {dtype: spelling for spelling, dtype in FLOAT_DTYPES.items()}
    entries = {
        str(name): Entry(file, tuple(one.shape), spellings.get(one.dtype, str(one.dtype)))
        for name, one in tensors.items()
    }
    detached = {str(name): one.detach() for name, one in tensors.items()}
    return Checkpoint(directory, entries, {file: SimpleNamespace(get_tensor=detached.__getitem__)})


def _is_whole(one: object) -> bool:
    """Whether a value is a tensor whose every element is stored in the file."""
    if not isinstance(one, Tensor) or one.layout != torch.strided or one.is_meta or one.is_nested:
        return False
    return one.numel() * one.element_size() <= one.untyped_storage().nbytes()


HEADS = ("eagle", "eagle3", "mtp")
"""The kinds of heads that `load_head` loads."""

AS_IN_TRANSFORMERS = MtpSwitches()

_EMBEDDING, _FEATURES_NORM, _LAYER = "embed_tokens.weight", "hidden_norm.weight", "layers.0."


def find_head(directory: Path) -> str | None:
    """The kind of head that a directory holds, complete or not; None for a whole model."""
    if not any((directory / name).is_file() for name in (SINGLE_FILE, INDEX_FILE, PICKLE)):
        return None
    names = open_head(directory).entries
    if _LAYER + _FEATURES_NORM in names or any(name.startswith(RAW_LAYER) for name in names):
        return "eagle3"
    # Only a whole model's first layer normalises its input.
    is_later = _LAYER + MLP_NORM in names and _LAYER + ATTENTION_NORM not in names
    return "eagle" if "fc.weight" in names or is_later else None


def load_head(
    directory: Path, kind: str, target: AnyModel, switches: MtpSwitches = AS_IN_TRANSFORMERS
) -> Head:
    """Load one of `HEADS` for the target that it was trained for, in its dtype, on its device.

    Only a target of the adapter transformers can have mtp; `switches` concern mtp alone.
    """
    if kind == "mtp":
        head: Head = _mtp(target).load_mtp(directory, target, switches)
        return head
    load = _eagle if kind == "eagle" else _eagle3
    return load(read_json(directory / "config.json"), open_head(directory), target)


def random_head(config_file: Path, kind: str, target: AnyModel) -> Head:
    """One of `HEADS` with random weights, shaped by its config.json or, for mtp, its target's.

    The config file may have any name.
    """
    if kind == "mtp":
        head: Head = _mtp(target).random_mtp(config_file, target)
        return head
    config = read_json(config_file)
    num_ids = config.integer("draft_vocab_size", 1, default=target.vocab_size)
    fewer: dict[str, Shape] = {DRAFT_TO_TARGET: (num_ids,)} if num_ids < target.vocab_size else {}
    tensors = RandomTensors(config_file, fewer, target.dtype, target.device, seed=1)
    return (_eagle if kind == "eagle" else _eagle3)(config, tensors, target)


def _mtp(target: AnyModel) -> Any:
    if isinstance(target, TransformerModel):
        raise UnavailableError("drafter mtp: expected the model adapter transformers, got own")
    from ..library_model import mtp  # noqa: PLC0415, an extra

    return mtp


def _eagle(config: JsonObject, checkpoint: Tensors, target: AnyModel) -> Head:
    layer = read_layer(config, target)
    size = layer.hidden_size
    if size != target.hidden_size:
        raise config.error("hidden_size", f"the target's, {target.hidden_size}", size)
    # If the config does not say, the head may have a bias or not.
    has_bias = config.flag("bias", default="fc.bias" in checkpoint.entries)

    def read_parts(read: WeightReader) -> dict[str, Any]:
        return {"mix": Merge(read.linear({"fc": size}, 2 * size, bias=has_bias))}

    return _head(
        *(checkpoint, layer, target, _LAYER, size, read_parts),
        what_to_check=f"that it is this target's, and rope_theta ({layer.rope.theta:g})",
        taps=(target.num_layers,),
        # The last hidden states, as the target's LM head reads them.
        read=lambda hidden: target.norm(hidden[0]),
        norm=None,
        lm_head=target.lm_head,
        draft_to_target=None,
    )


def _eagle3(config: JsonObject, checkpoint: Tensors, target: AnyModel) -> Head:
    layer, prefix = read_eagle3_layer(config, target)
    switches, taps = read_switches(config), read_taps(config, target)
    num_ids = config.integer("draft_vocab_size", 1, target.vocab_size, default=target.vocab_size)
    size, tap_size, num_taps = layer.hidden_size, target.hidden_size, len(taps)

    def read_parts(read: WeightReader) -> dict[str, Any]:
        norms: tuple[RMSNorm, ...] = ()
        if switches["norm_before_fc"]:
            norms = (read.norm("input_norm.weight", num_taps * tap_size),)
        elif switches["fc_norm"]:
            norms = (*(read.norm(f"fc_norm.{tap}.weight", tap_size) for tap in range(num_taps)),)
        norm = read.norm("norm.weight")
        mix = SideBySide(
            embedding_norm=read.norm(prefix + ATTENTION_NORM),
            features_norm=read.norm(prefix + _FEATURES_NORM),
            normalised_residual=switches["norm_before_residual"],
        )
        normalised = switches["norm_output"]
        return {
            "read": Fusion(norms, read.linear({"fc": size}, num_taps * tap_size, bias=False)),
            "mix": mix,
            "output_norm": norm if normalised else None,
            "norm": None if normalised else norm,
            "lm_head": read.linear({"lm_head": num_ids}, size, bias=False),
        }

    return _head(
        *(checkpoint, layer, target, prefix, 2 * size, read_parts),
        what_to_check=(
            "that it is this target's, and norm_before_residual "
            f"({switches['norm_before_residual']}), rope_theta ({layer.rope.theta:g}), {TAPS} "
            f"({list(taps)})"
        ),
        taps=taps,
        draft_to_target=_draft_to_target(checkpoint, num_ids, target),
    )


def _head(
    checkpoint: Tensors,
    layer: ModelConfig,
    target: AnyModel,
    prefix: str,
    num_inputs: int,
    read_parts: Callable[[WeightReader], dict[str, Any]],
    **more: Any,
) -> Head:
    """Read a head's layer, with inputs of num_inputs, and its other parts; check headers first."""
    size = layer.hidden_size
    has_embedding = _EMBEDDING in checkpoint.entries or size != target.hidden_size
    planner = StepPlanner.of(layer, target.max_model_len, target.embedding)

    def read_all(read: WeightReader) -> dict[str, Any]:
        embedding, parts = target.embedding, read_parts(read)
        if has_embedding:
            embedding = read.tensor(_EMBEDDING, target.vocab_size, size)
        of_layer = EagleLayer(
            mix=parts.pop("mix"),
            attention=read.attention(prefix, layer.windows[0], num_inputs),
            mlp_norm=read.norm(prefix + MLP_NORM),
            mlp=read.mlp(prefix),
            output_norm=parts.pop("output_norm", None),
            planner=planner,
        )
        return {"embedding": embedding, "layer": of_layer, **parts}

    checkpoint.check(expected_tensors(layer, read_all))
    parts = read_all(WeightReader(checkpoint, layer, target.dtype, target.device))
    # Most heads' files hold a copy of it.
    if has_embedding and torch.equal(parts["embedding"], target.embedding):
        parts["embedding"] = target.embedding
    parts |= {"layer_shapes": (layer.layer_shape,), "max_model_len": target.max_model_len}
    return Head(**parts, **more)


def _draft_to_target(checkpoint: Tensors, draft_vocab_size: int, target: AnyModel) -> Tensor | None:
    if DRAFT_TO_TARGET in checkpoint.entries:
        target_ids = read_draft_ids(checkpoint, draft_vocab_size, target.vocab_size)
        return target_ids.to(target.device)
    if draft_vocab_size < target.vocab_size:
        where = f"{checkpoint.directory}: {DRAFT_TO_TARGET}"
        raise unfit(where, f"shape [{draft_vocab_size}]", "no such tensor")
    return None
