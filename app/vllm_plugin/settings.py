"""What an engine's `additional_config` says under `acceptor`: a table, or the TOML file of one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from ...adapters.error_text import read_config_file
from ...core import Block, ConfigError, Policy, Probabilistic, Stream, Synthetic
from ..policies import PolicySettings, make_policy
from ..structure import structured

KEY = "acceptor"


@frozen(kw_only=True)
class PluginSettings:
    """How acceptor verifies in an engine.

    Attributes:
        policy: None for what vLLM's own `rejection_sample_method` names.
    """

    backend: str = "triton"
    policy: PolicySettings | None = None

    def policy_for(self, speculation: Any) -> Policy:
        """The policy, for a vLLM `SpeculativeConfig`.

        Raises:
            ConfigError: vLLM's method has no counterpart here, or coupled drafts are not drawn.
            InvalidInputError: the policy's settings do not fit the number of draft tokens.
        """
        if self.policy is not None:
            policy = make_policy(self.policy, speculation.num_speculative_tokens)
            method = speculation.draft_sample_method
            if policy.draft_stream is Stream.TARGET and method != "probabilistic":
                raise ConfigError(
                    "draft_sample_method: expected probabilistic, as drafts are coupled, "
                    f"got {method!r}"
                )
            return policy
        method = speculation.rejection_sample_method
        if method == "synthetic":
            return Synthetic(speculation.synthetic_acceptance_rates)
        if method in ("standard", "block"):
            return Block() if method == "block" else Probabilistic()
        raise ConfigError(
            "rejection_sample_method: expected standard, block or synthetic, or a policy under "
            f"{KEY}, got {method!r}"
        )


def plugin_settings(additional_config: object) -> PluginSettings | None:
    """The settings; None where an engine does not name acceptor.

    Raises:
        ConfigError: a setting is unknown, of the wrong type or out of its range, or the file that
            is named cannot be read.
    """
    if not isinstance(additional_config, Mapping) or additional_config.get(KEY) is None:
        return None
    given = additional_config[KEY]
    if isinstance(given, str):
        return structured(read_config_file(Path(given)), PluginSettings, given)
    return structured(given, PluginSettings, KEY)
