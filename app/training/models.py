"""The two Llamas as transformers builds them, how they learn, and how they are written.

Adds nothing to the architecture: what is saved is a plain Llama checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from attrs import frozen
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import LlamaConfig, LlamaForCausalLM

from .pace import rate_share
from .recipe import Recipe, Shape
from .tokenizer import END_OF_TEXT_ID


def build_model(shape: Shape, recipe: Recipe, device: torch.device) -> LlamaForCausalLM:
    """A freshly initialised Llama of this shape, in fp32."""
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
    return LlamaForCausalLM(config).to(device)


def logits_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """tokens: [rows, length] to raw logits: [rows, length, vocab_size]; -1 reads as END_OF_TEXT."""
    logits: Tensor = model(input_ids=tokens.clamp(min=0), use_cache=False).logits
    return logits


def compile_layers(model: LlamaForCausalLM) -> None:
    """Let layers run fused; they share one compilation, made when the first one runs."""
    for layer in model.model.layers:
        layer.compile(dynamic=False)


def teacher_of(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """What gives the same logits faster: on a GPU a compiled copy in bf16, as it is served."""
    if model.device.type != "cuda":
        return model
    teacher = deepcopy(model).to(torch.bfloat16)
    compile_layers(teacher)
    return teacher


@contextmanager
def dropout(model: LlamaForCausalLM, probability: float) -> Iterator[None]:
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


@frozen(eq=False)
class Learner:
    """A model, the optimizer that moves it and the running average that is kept."""

    model: LlamaForCausalLM
    average: AveragedModel
    optimizer: torch.optim.Optimizer
    learning_rate: float

    def step(self, loss: Tensor, progress: float) -> None:
        """One update from `loss`, at the learning rate of this progress; then the average's."""
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * rate_share(progress)
        self.optimizer.step()
        self.average.update_parameters(self.model)


def learner(model: LlamaForCausalLM, learning_rate: float, recipe: Recipe) -> Learner:
    """AdamW at a rate that follows the progress; matrices decay, norms do not."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    norms = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": recipe.weight_decay},
            {"params": norms, "weight_decay": 0.0},
        ],
        lr=learning_rate,
        betas=(0.9, 0.95),
        fused=model.device.type == "cuda",
    )
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.average_decay))
    return Learner(model, average, optimizer, learning_rate)


def as_shipped(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """An fp32 copy whose weights are those that bf16 keeps."""
    return deepcopy(model).to(torch.bfloat16).to(torch.float32).eval().requires_grad_(False)


def save_model(model: LlamaForCausalLM, directory: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors in bf16, each at once."""
    directory.mkdir(parents=True, exist_ok=True)
    # A run that is killed meanwhile leaves the weights that were there before.
    with TemporaryDirectory(dir=directory) as new:
        deepcopy(model).to("cpu", torch.bfloat16).save_pretrained(new)
        for file in Path(new).iterdir():
            file.replace(directory / file.name)
