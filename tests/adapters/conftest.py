"""Tiny checkpoints with random weights, written by transformers, the independent reference."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from attrs import frozen
from transformers import LlamaConfig, PretrainedConfig, PreTrainedModel

from kit.shapes import TINY
from kit.small_families import random_model

transformers.utils.logging.disable_progress_bar()


@frozen
class Saved:
    """A checkpoint directory and the model that wrote it, in evaluation mode."""

    directory: Path
    reference: PreTrainedModel


@pytest.fixture(scope="session")
def save(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Saved]:
    """Make a random model of a config and save it; further arguments go to save_pretrained."""

    def make(config: PretrainedConfig, dtype: torch.dtype = torch.float32, **how: object) -> Saved:
        directory = tmp_path_factory.mktemp("checkpoint")
        model = random_model(config).to(dtype)
        model.save_pretrained(directory, **how)
        return Saved(directory, model)

    return make


@pytest.fixture(scope="session")
def tiny_llama(save: Callable[..., Saved]) -> Path:
    """A checkpoint small enough to be copied for every test; leave it as it is."""
    return save(LlamaConfig(**TINY)).directory


@pytest.fixture
def checkpoint(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy of `tiny_llama`, to be damaged."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))
