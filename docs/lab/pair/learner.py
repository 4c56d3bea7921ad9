"""How the bundled pair learns: its recipe, and a model in training with what is kept of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from attrs import frozen
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_with_min_lr_schedule_with_warmup

from lab.pair.text import END_OF_TEXT_ID

WARM_UP, LEAST_RATE = 0.05, 0.05


@frozen
class Shape:
    """Sizes of one Llama: the whole difference between the target and the draft."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int


@frozen(kw_only=True)
class Recipe:
    """The settings that decide a run's outcome, besides the texts and the machine."""

    seed: int = 20261121
    vocab_size: int = 4096
    context_length: int = 1024
    # Deep and narrow on purpose: on a CPU each layer has a fixed cost, so one layer is cheap.
    target: Shape = Shape(160, 20, 5, 1, 480)
    draft: Shape = Shape(128, 1, 4, 2, 384)
    dropout: float = 0.2
    weight_decay: float = 0.2
    average_decay: float = 0.995
    target_rows_per_step: int = 16
    target_steps: int = 1300
    target_learning_rate: float = 2e-3
    draft_rows_per_step: int = 32
    draft_steps: int = 6000
    draft_learning_rate: float = 4e-3
    sampled_rows: int = 4096
    evaluation_rows: int = 64
    evaluate_every: int = 200


class Learner:
    """A fresh Llama in float32, the optimizer that moves it and the running average kept of it.

    The learning rate rises linearly, and falls as a cosine to a twentieth.
    """

    def __init__(
        self,
        shape: Shape,
        learning_rate: float,
        num_steps: int,
        recipe: Recipe,
        device: torch.device,
    ) -> None:
        config = LlamaConfig(
            vocab_size=recipe.vocab_size,
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            head_dim=shape.hidden_size // shape.num_heads,
            max_position_embeddings=recipe.context_length,
            tie_word_embeddings=True,
            bos_token_id=END_OF_TEXT_ID,
            eos_token_id=END_OF_TEXT_ID,
            pad_token_id=None,
        )
        self.model = LlamaForCausalLM(config).to(device)
        average = get_ema_multi_avg_fn(recipe.average_decay)
        self.average = AveragedModel(self.model, multi_avg_fn=average)
        # Matrices decay, norms do not.
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        norms = [p for p in self.model.parameters() if p.ndim <= 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": recipe.weight_decay},
                {"params": norms, "weight_decay": 0.0},
            ],
            lr=learning_rate,
            betas=(0.9, 0.95),
        )
        self.schedule = get_cosine_with_min_lr_schedule_with_warmup(
            self.optimizer, round(WARM_UP * num_steps), num_steps, min_lr_rate=LEAST_RATE
        )

    def step(self, loss: Tensor) -> None:
        """One update from `loss`, then one of the average and of the learning rate."""
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.average.update_parameters(self.model)


@contextmanager
def dropout(model: nn.Module, probability: float) -> Iterator[None]:
    """Drop embeddings and what each block adds to the stream: Llama itself has no dropout."""
    blocks = ("embed_tokens", "o_proj", "down_proj")
    drop = nn.Dropout(probability)
    hooks = [
        module.register_forward_hook(lambda _module, _input, output: drop(output))
        for name, module in model.named_modules()
        if name.endswith(blocks)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def as_shipped(model: nn.Module) -> LlamaForCausalLM:
    """A float32 copy whose weights are those that bfloat16 keeps."""
    return deepcopy(model).to(torch.bfloat16).to(torch.float32).eval().requires_grad_(False)


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 matrix products if the device is fast at them; float32 weights everywhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
