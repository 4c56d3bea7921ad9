"""Where acceptor enters vLLM: its rejection sampler, and the check of a request's parameters."""

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

from ...core import UnavailableError
from .settings import plugin_settings

OLDEST, TOO_NEW = (0, 33), (0, 34)
"""The minor releases of vLLM whose internals this package knows, the second excluded."""

SAMPLER_MODULE = "vllm.v1.worker.gpu.spec_decode.rejection_sampler"
USERS_OF_SAMPLER = ("vllm.v1.worker.gpu.model_runner",)
CHECK, MARK = "_validate_spec_decode", "verified_by_acceptor"


def register() -> None:
    """Offer acceptor to the engines of this process; called by vLLM.

    A vLLM of another minor release is left as it is, and a line of the log says so.
    """
    found = version("vllm")
    release = tuple(int(part) for part in found.split(".")[:2])
    if not OLDEST <= release < TOO_NEW:
        logging.getLogger(__name__).warning(
            "acceptor: expected vLLM %s, got %s, whose own rejection sampler stays", "0.33", found
        )
        return
    _offer_sampler()
    _let_parameters_pass()


def _offer_sampler() -> None:
    module = import_module(SAMPLER_MODULE)
    if hasattr(module.RejectionSampler, "instead_of"):
        return
    ours = import_module(f"{__package__}.rejection_sampler")
    factory = ours.sampler_factory(module.RejectionSampler)
    users = (sys.modules.get(name) for name in USERS_OF_SAMPLER)
    for user in (module, *filter(None, users)):
        user.RejectionSampler = factory  # type: ignore[attr-defined]


def _let_parameters_pass() -> None:
    """Serve min-p and logit biases beside drafts, which vLLM refuses when a request comes in."""
    processor = import_module("vllm.v1.engine.input_processor").InputProcessor
    params = import_module("vllm.sampling_params").SamplingParams
    if hasattr(params, MARK):
        return
    start, refuse = processor.__init__, getattr(params, CHECK)

    def start_marked(self: Any, vllm_config: Any, *args: Any, **options: Any) -> None:
        speculation = vllm_config.speculative_config
        if speculation is not None and plugin_settings(vllm_config.additional_config):
            if not vllm_config.use_v2_model_runner:
                raise UnavailableError("acceptor: expected vLLM's model runner 2, got 1")
            object.__setattr__(speculation, MARK, True)
        start(self, vllm_config, *args, **options)

    def refuse_unless_marked(self: Any, speculation: Any) -> None:
        if not getattr(speculation, MARK, False):
            refuse(self, speculation)

    _replace(processor, "__init__", start_marked)
    _replace(params, CHECK, refuse_unless_marked)
    setattr(params, MARK, True)


def _replace(owner: Any, name: str, function: Callable[..., None]) -> None:
    setattr(owner, name, function)
