"""The record of a run: what went in, how the losses fell, what came out.

Every figure in the docs is read from it; it holds no path and no name of a machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from attrs import asdict
from torch import Tensor
from transformers import LlamaForCausalLM

from .data import SPLIT, Source
from .measure import Agreement, bits_per_byte, held_out_loss
from .pace import Budget
from .recipe import Recipe
from .train import Point


def describe_source(source: Source) -> dict[str, Any]:
    """Name and counts of one text; the digest is of what was kept of it, training part first."""
    return {
        "name": source.name,
        "sha256": hashlib.sha256("".join(source.training + source.held_out).encode()).hexdigest(),
        "training_sections": len(source.training),
        "held_out_sections": len(source.held_out),
        "held_out_bytes": sum(len(section.encode()) for section in source.held_out),
    }


def describe_model(model: LlamaForCausalLM, rows: Tensor, num_bytes: int) -> dict[str, Any]:
    """Parameters and held-out loss of one model; rows: the held-out text's covering rows."""
    nats = held_out_loss(model, rows)
    num_tokens = int((rows[:, 1:] >= 0).sum())
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "held_out_nats_per_token": nats,
        "held_out_bits_per_byte": bits_per_byte(nats, num_tokens, num_bytes),
    }


def describe_run(recipe: Recipe, device: torch.device, budget: Budget) -> dict[str, Any]:
    """Settings, versions, date and kind of device, and how long it took before the measures."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": name,
        "seconds_limit": budget.seconds,
        "seconds": round(budget.elapsed, 1),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "split": SPLIT,
        "recipe": asdict(recipe),
    }


def describe_curves(**curves: Sequence[Point]) -> dict[str, Any]:
    """Loss curves by model, a list of points each."""
    return {name: [asdict(point) for point in curve] for name, curve in curves.items()}


def describe_agreements(agreements: Sequence[Agreement]) -> list[dict[str, Any]]:
    """One entry per temperature."""
    return [asdict(agreement) for agreement in agreements]


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write the record as indented JSON in UTF-8."""
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
