"""vLLM's own kernels, audited and timed by this package, in test_vllm_plugin.py's process."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from vllm.v1.worker.gpu.sample import gumbel

from acceptor.app.audit import peers
from acceptor.app.audit.run import audit
from acceptor.app.bench.kernels.stopwatch import Stopwatch
from acceptor.app.vllm_plugin.rejection_sampler import AcceptorSampler
from acceptor.app.vllm_plugin.settings import PluginSettings
from kit.vllm_engine import BACKEND, DEVICE, OWN
from lab.speed import vllm as vllm_speed

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
    assert f"| greedy | vLLM | 7.2 | 7.2 |\n|  | {BACKEND} | 7.2 | 7.2 |\n" in written
