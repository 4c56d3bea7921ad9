"""Text that a model writes from nothing, many rows at a time.

Written with the model as it is served, whose cache grows in place: transformers copies its own in
every step. This module refuses to verify: each token is drawn from one model.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from ...adapters import load_model
from ...adapters.language_model import TransformerModel
from .models import save_model
from .tokenizer import END_OF_TEXT_ID


def as_served(model: LlamaForCausalLM) -> TransformerModel:
    """The same model, in bf16 on a GPU."""
    with TemporaryDirectory() as directory:
        save_model(model, Path(directory))
        return load_model(directory, device=model.device)


@torch.no_grad()
def sample_rows(model: TransformerModel, temperatures: Tensor, length: int) -> Tensor:
    """Rows that begin with END_OF_TEXT and go on by the model's own draws: [num_rows, length].

    temperatures: [num_rows]. The race uses torch's generator, seeded by the caller; END_OF_TEXT
    does not stop a row, since the training stream goes on after it too.
    """
    num_rows, device = len(temperatures), model.device
    cache = model.new_cache(num_rows, length)
    rows = torch.full((num_rows, length), END_OF_TEXT_ID, device=device)
    for place in range(length - 1):
        positions = torch.full((num_rows, 1), place, device=device)
        logits = model.forward(rows[:, place, None], positions, cache, max_position=place)[:, 0]
        weights = (logits.float() / temperatures[:, None]).softmax(-1)
        rows[:, place + 1] = (weights / torch.empty_like(weights).exponential_()).argmax(-1)
    return rows
