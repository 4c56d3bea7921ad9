"""Hooks acceptor into vLLM: settings, the rejection sampler, the check of requests' parameters.

The entry `acceptor` of an engine's `additional_config` is a table, or the name of a TOML file.
"""

import logging
import sys
import tomllib
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attrs import frozen

from ...adapters.error_text import read_named, unfit
from ...core import Block, ConfigError, Policy, Probabilistic, Stream, Synthetic, UnavailableError
from ..policies import PolicySettings, make_policy
from ..structure import structured

KEY = "acceptor"


@frozen(kw_only=True)
class PluginSettings:
    """How acceptor verifies in an engine.

    Attributes:
        policy: None for the one that vLLM's own `rejection_sample_method` names.
    """

    backend: str = "triton"
    policy: PolicySettings | None = None

    def policy_for(self, speculation: Any) -> Policy:
        """The policy, for a vLLM `SpeculativeConfig`.

        Raises:
            ConfigError: vLLM's method has no counterpart here, or drafts cannot be coupled.
            InvalidInputError: the policy's settings do not fit the number of draft tokens.
        """
        if self.policy is not None:
            policy = make_policy(self.policy, speculation.num_speculative_tokens)
            method = speculation.draft_sample_method
            if policy.draft_stream is Stream.TARGET and method != "probabilistic":
                expected = "probabilistic, as drafts are coupled"
                raise unfit("draft_sample_method", expected, repr(method), ConfigError)
            return policy
        method = speculation.rejection_sample_method
        if method == "synthetic":
            return Synthetic(speculation.synthetic_acceptance_rates)
        if method in ("standard", "block"):
            return Block() if method == "block" else Probabilistic()
        expected = f"standard, block or synthetic, or a policy under {KEY}"
        raise unfit("rejection_sample_method", expected, repr(method), ConfigError)


def plugin_settings(additional_config: object) -> PluginSettings | None:
    """The settings; None if an engine does not name acceptor.

    Raises:
        ConfigError: a setting is unknown, of the wrong type or out of its range, or the named file
            cannot be read.
    """
    if not isinstance(additional_config, Mapping) or additional_config.get(KEY) is None:
        return None
    given = additional_config[KEY]
    if isinstance(given, str):
        table = read_named(Path(given), "a TOML file", tomllib.loads)
        return structured(table, PluginSettings, given)
    return structured(given, PluginSettings, KEY)


KNOWN = "0.33"
"""The minor release of vLLM whose internals this package knows."""

SAMPLER_MODULE = "vllm.v1.worker.gpu.spec_decode.rejection_sampler"
USER_OF_SAMPLER = "vllm.v1.worker.gpu.model_runner"
CHECK, MARK = "_validate_spec_decode", "verified_by_acceptor"


def register() -> None:
    """Offer acceptor to the engines of this process; vLLM calls this.

    vLLM of another minor release is left unchanged, and a line in the log says so.
    """
    found = version("vllm")
    if not found.startswith(f"{KNOWN}."):
        logging.getLogger(__name__).warning(
            "acceptor: expected vLLM %s, got %s, whose own rejection sampler stays", KNOWN, found
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
    for user in filter(None, (module, sys.modules.get(USER_OF_SAMPLER))):
        user.RejectionSampler = factory  # type: ignore[attr-defined]


def _let_parameters_pass() -> None:
    """Allow min-p and logit biases with drafts, which vLLM refuses when a request comes in."""
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

    processor.__init__ = start_marked
    setattr(params, CHECK, refuse_unless_marked)
    setattr(params, MARK, True)
