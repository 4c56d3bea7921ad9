"""What engines say of acceptor and what is measured of them, in test_vllm_plugin.py's process."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.worker.gpu.sample import gumbel
from vllm.v1.worker.gpu.spec_decode import rejection_sampler

from acceptor.app.audit import peers
from acceptor.app.audit.run import audit
from acceptor.app.bench.kernels.measure import Stopwatch
from acceptor.app.vllm_plugin.registration import PluginSettings
from acceptor.app.vllm_plugin.rejection_sampler import AcceptorSampler
from acceptor.core.errors import ConfigError, UnavailableError
from kit.vllm_engine import BACKEND, DEVICE, OWN, Engine, speculation
from lab.speed import vllm as vllm_speed


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
    assert Engine([SamplingParams()]).rejection_sampler.policy.name == "block"


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


NUM_AUDITED = 40 if DEVICE.type == "cpu" else 20_000


@pytest.mark.parametrize("step", [peers.vllm, peers.vllm_block], ids=["usual", "block"])
def test_the_audit_passes_vllms_kernels(step: Any) -> None:
    assert audit(step, num_steps=NUM_AUDITED, temperatures=(1.0, 0.0)).passed


@pytest.mark.skipif(DEVICE.type == "cpu", reason="an interpreter runs too few steps to tell")
def test_the_audit_names_what_vllms_salt_prevents(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsalted(
        logits: Tensor, slots: Tensor, temperature: Tensor, seeds: Tensor, pos: Tensor, **how: Any
    ) -> Tensor:
        # A draft's place, too, makes noise of its own; here it takes itself out again.
        seeds = seeds ^ (how["logits_cache_col"].long() << 32)
        drawn: Tensor = own(logits, slots, temperature, seeds, pos, **how | {"is_drafting": False})
        return drawn

    own = gumbel.gumbel_sample
    monkeypatch.setattr(gumbel, "gumbel_sample", unsalted)
    found = audit(peers.vllm, num_steps=NUM_AUDITED)
    assert found.mistakes == ("shared noise of draft and verification",)


def test_the_record_says_who_was_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugged = partial(AcceptorSampler, PluginSettings(backend=BACKEND))
    monkeypatch.setattr(vllm_speed, "SAMPLERS", {"vLLM": OWN, BACKEND: plugged})
    monkeypatch.setattr(vllm_speed, "RECIPES", vllm_speed.RECIPES[:2])
    monkeypatch.setattr(vllm_speed, "VOCAB_SIZE", 50)
    monkeypatch.setattr(Stopwatch, "replays", lambda *_: [7.25])
    vllm_speed.main(tmp_path / "vllm.md", num_reqs=(2, 3), count=1)
    written = (tmp_path / "vllm.md").read_text(encoding="utf-8")
    assert "Of the greedy requests 0 get other tokens than from vLLM's kernels." in written
    assert f"| µs at R = 2/3 | vLLM | {BACKEND} |\n" in written
    assert "| greedy | 7.2/7.2 | 7.2/7.2 |\n" in written
