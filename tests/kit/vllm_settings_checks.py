"""What engines say of acceptor, in the process that test_vllm_plugin.py starts for it."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.worker.gpu.spec_decode import rejection_sampler

from acceptor.core.errors import ConfigError, UnavailableError
from kit.vllm_engine import DEVICE, Engine, speculation


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"backend": 3}, "acceptor: backend: expected a string, got 3"),
        ({"policy": {"name": "fast"}}, "acceptor: policy.name: expected one of"),
        ("/nowhere.toml", "/nowhere.toml: expected a TOML file"),
        (["reference"], "acceptor: expected a table"),
        ({"law": 1}, "acceptor: law: expected backend, policy here"),
    ],
)
def test_settings_that_are_wrong_are_named(given: Any, said: str, configured: Any) -> None:
    configured["acceptor"] = given
    with pytest.raises(ConfigError, match=said):
        rejection_sampler.RejectionSampler(None, speculation(), DEVICE)


def test_settings_come_from_a_file(tmp_path: Any, configured: Any) -> None:
    path = tmp_path / "acceptor.toml"
    path.write_text('backend = "reference"\n[policy]\nname = "block"\n')
    configured["acceptor"] = str(path)
    engine = Engine([SamplingParams()])
    assert engine.rejection_sampler.policy.name == "block"


def test_what_has_no_counterpart_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rejection_sample_method: expected .*, got 'fly'"):
        Engine([SamplingParams()], speculation("fly"))
    with pytest.raises(UnavailableError, match="watermark"):
        rejection_sampler.RejectionSampler(None, speculation(), DEVICE, watermark_key=7)


@pytest.mark.parametrize("params", [{"min_p": 0.1}, {"logit_bias": {1: 1.0}}])
@pytest.mark.parametrize("additional", [{}, {"acceptor": {}}])
def test_parameters_pass_where_acceptor_serves_them(
    params: Mapping[str, Any], additional: Mapping[str, Any]
) -> None:
    spec = speculation()
    config = SimpleNamespace(
        speculative_config=spec, additional_config=additional, use_v2_model_runner=True
    )
    processor = InputProcessor.__new__(InputProcessor)
    with pytest.raises(AttributeError):
        # Nothing else of a config is here, so that vLLM's own start ends early.
        InputProcessor.__init__(processor, config)
    if additional:
        SamplingParams(**params)._validate_spec_decode(spec)
    else:
        with pytest.raises(VLLMValidationError):
            SamplingParams(**params)._validate_spec_decode(spec)


def test_the_first_model_runner_is_refused() -> None:
    config = SimpleNamespace(
        speculative_config=speculation(),
        additional_config={"acceptor": {}},
        use_v2_model_runner=False,
    )
    with pytest.raises(UnavailableError, match="expected vLLM's model runner 2"):
        InputProcessor.__init__(InputProcessor.__new__(InputProcessor), config)
