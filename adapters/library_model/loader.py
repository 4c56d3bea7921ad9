"""Loads a checkpoint directory as a `LibraryModel`.

Only safetensors files are read, and no code in the directory is run.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from attrs import evolve
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, Mxfp4Config
from transformers.cache_utils import get_layer_types_and_kwargs
from transformers.utils import logging

from ...core.checks import check_device, check_integer
from ...core.errors import AcceptorError
from ..error_text import unfit
from ..json_object import read_json
from ..model_config import MAX_POSITIONS, context_of, read_eos
from .model import LibraryModel, Shapes, Windows

ATTENTION = ("sdpa", "eager")
"""Implementations of attention that take any mask; the first that a network has is used."""

_OWN_CODE = {"trust_remote_code": False}
"""Otherwise transformers asks on the terminal whether it may run the directory's code."""

_ALL, _SLIDING = "full_attention", "sliding_attention"


def load_library_model(
    directory: Path,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device,
    max_model_len: int | None = None,
) -> LibraryModel:
    """Load a checkpoint directory; the arguments are those of `acceptor.adapters.load_model`."""
    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True, **_OWN_CODE)
        # Checked before any weights are read.
        _windows(directory, config.get_text_config())
        length = context_of(max_model_len, _longest(config.get_text_config()))
        with _quietly():
            model = adapt_network(_load(directory, config, dtype, device))
    except AcceptorError:
        raise
    except Exception as error:
        expected = "a causal language model that transformers loads"
        raise unfit(directory, expected, error) from error
    eos = read_eos(directory, read_json(directory / "config.json"), model.vocab_size)
    return evolve(model, max_model_len=length, eos_token_ids=eos)


def random_library_model(
    config_file: Path,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    num_layers: int | None = None,
    max_model_len: int | None = None,
) -> LibraryModel:
    """A model of a config.json's shape with random weights; see `random_model`."""
    config, device = read_json(config_file), check_device(device)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    fields = {name: value for name, value in config.values.items() if name != "model_type"}
    if num_layers is not None:
        check_integer("num_layers", num_layers, 1, config.integer("num_hidden_layers", 1))
        fields["num_hidden_layers"] = num_layers
    try:
        made = AutoConfig.for_model(config.text("model_type"), **fields)
        with device:
            network = AutoModelForCausalLM.from_config(made, dtype=dtype).eval()
    except Exception as error:
        expected = "a causal language model that transformers has"
        raise unfit(config.source, expected, error) from error
    model = adapt_network(_with_masks(network))
    return evolve(model, max_model_len=context_of(max_model_len, model.max_model_len))


def adapt_network(network: Any) -> LibraryModel:
    """Adapt a loaded network as it is; its end-of-sequence tokens are not read.

    Raises:
        CheckpointError: it is not a decoder in evaluation mode, on one device and with an attention
            in `ATTENTION`, or its layers do not attend to earlier tokens.
    """
    name, config = type(network).__name__, network.config
    devices = {str(parameter.device) for parameter in network.parameters()}
    attention = config._attn_implementation  # noqa: SLF001, has no other name
    for what, is_fit, expected, got in (
        ("architecture", not config.is_encoder_decoder, "a decoder", "an encoder and a decoder"),
        ("mode", not network.training, "evaluation", "training"),
        ("devices", len(devices) == 1, "one", ", ".join(sorted(devices))),
        ("attn_implementation", attention in ATTENTION, " or ".join(ATTENTION), attention),
    ):
        if not is_fit:
            raise unfit(f"{name}: {what}", expected, got)
    text = config.get_text_config()
    windows = _windows(name, text)
    return LibraryModel(
        network=network,
        windows=windows,
        shapes=_shapes(network, windows),
        max_model_len=_longest(text),
        eos_token_ids=(),
    )


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence transformers' progress bars and reports: errors are one line."""
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()


def _load(directory: Path, config: Any, dtype: torch.dtype | None, device: torch.device) -> Any:
    if dtype is None and device.type == "cpu":
        dtype = torch.float32
    how: dict[str, Any] = {}
    if getattr(config, "quantization_config", None) is not None:
        method = dict(config.quantization_config).get("quant_method")
        if method != "mxfp4":
            raise unfit(f"{directory}: quantization_config", "none or mxfp4", method)
        how["quantization_config"] = Mxfp4Config(dequantize=True)
    network, said = AutoModelForCausalLM.from_pretrained(
        directory,
        dtype="auto" if dtype is None else dtype,
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
        # The error below names them.
        ignore_mismatched_sizes=True,
        **_OWN_CODE,
        **how,
    )
    for what in ("missing_keys", "mismatched_keys"):
        names = sorted(key if isinstance(key, str) else key[0] for key in said[what])
        if names:
            got = f"{what.removesuffix('_keys')} ones, {len(names)} in all"
            raise unfit(f"{directory}: {names[0]}", "a tensor that fits", got)
    return _with_masks(network.eval().to(device))


def _with_masks(network: Any) -> Any:
    if network.config._attn_implementation not in ATTENTION:  # noqa: SLF001, has no other name
        network.set_attn_implementation("eager")
    return network


def _windows(source: Path | str, config: Any) -> Windows:
    kinds, settings = get_layer_types_and_kwargs(config)
    found = {kind: given.get("sliding_window") for kind, given in zip(kinds, settings, strict=True)}
    found.pop("dummy", None)
    strange = found.keys() - {_ALL, _SLIDING}
    if strange or not found or not getattr(config, "is_causal", True):
        got = ", ".join(sorted(strange)) or "none"
        raise unfit(f"{source}: layer_types", f"{_ALL} or {_SLIDING}", got)
    return found


def _longest(config: Any) -> int:
    """The context; a shorter one if longer texts would change the rotation of cached keys."""
    parameters = getattr(config, "rope_parameters", None) or {}
    if parameters.get("rope_type") == "longrope":
        return int(parameters["original_max_position_embeddings"])
    return min(int(getattr(config, "max_position_embeddings", MAX_POSITIONS)), MAX_POSITIONS)


@torch.no_grad()
def _shapes(network: Any, windows: Windows) -> Shapes:
    """The shapes that layers cache per token, found by a forward of one token with a mask."""
    name = type(network).__name__
    token_ids = torch.zeros((1, 1), dtype=torch.int64, device=network.device)
    mask = torch.zeros((1, 1, 1, 1), dtype=network.dtype, device=network.device)
    masks = dict.fromkeys(windows, mask) if len(windows) > 1 else mask
    cache = DynamicCache(config=network.config.get_text_config())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network(
                input_ids=token_ids,
                position_ids=token_ids,
                attention_mask=masks,
                past_key_values=cache,
                use_cache=True,
            )
    except ValueError as error:
        # Networks with ALiBi derive their mask from padding.
        expected = "a network that takes a mask of what each token sees"
        raise unfit(name, expected, error) from error
    shapes = {
        # Of [1, num_heads, 1, head_dim].
        index: (tuple(layer.keys.shape[1::2]), tuple(layer.values.shape[1::2]))
        for index, layer in enumerate(cache.layers)
        if getattr(layer, "keys", None) is not None
    }
    if not shapes:
        # The network keeps its state elsewhere, or has none.
        raise unfit(name, "layers that keep keys and values", "none")
    return shapes
