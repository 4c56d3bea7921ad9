"""The state of a head's training, in a file from which another run continues."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from acceptor.adapters.error_text import one_line
from acceptor.core.errors import CheckpointError

_SAMPLES, _SAMPLE_BYTES = 64, 4096
Weights = Mapping[str, Tensor]


def digest_of_target(directory: Path) -> str:
    """A digest of config.json and of samples of the weights, which may be many gigabytes."""
    digest = sha256((directory / "config.json").read_bytes())
    for file in sorted(directory.glob("*.safetensors")):
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            for sample in range(_SAMPLES):
                opened.seek(size * sample // _SAMPLES)
                digest.update(opened.read(_SAMPLE_BYTES))
    return digest.hexdigest()


@frozen
class State:
    """The file of a run.

    Attributes:
        file: the file; other versions cannot read it.
        made_of: all that decides the run's outcome, by name.
    """

    file: Path
    made_of: Mapping[str, Any]

    def save(self, step: int, weights: Weights, optimizer: torch.optim.Optimizer) -> None:
        """Replace the file at once, so that an interrupted run leaves the last complete state."""
        saved = {
            "made_of": dict(self.made_of),
            "step": step,
            "weights": {name: weight.detach() for name, weight in weights.items()},
            "optimizer": optimizer.state_dict(),
        }
        unfinished = self.file.with_suffix(".unfinished")
        torch.save(saved, unfinished)
        unfinished.replace(self.file)

    def restore(self, weights: Weights, optimizer: torch.optim.Optimizer) -> int:
        """Load the file; returns how many steps are done, 0 if there is no file.

        Raises:
            CheckpointError: the file is damaged, or of another run.
        """
        if not self.file.exists():
            return 0
        try:
            saved = torch.load(self.file, map_location="cpu", weights_only=True)
            began_with, step = dict(saved["made_of"]), int(saved["step"])
        except Exception as error:  # noqa: BLE001, a damaged file may fail in any way
            raise self._damaged(error) from None
        for name, value in self.made_of.items():
            if (got := began_with.get(name)) != value:
                raise CheckpointError(
                    f"{self.file}: {name}: expected {value}, got {got}, with which the run began"
                )
        try:
            optimizer.load_state_dict(saved["optimizer"])
            for name, weight in weights.items():
                weight.data.copy_(saved["weights"][name])
        except Exception as error:  # noqa: BLE001
            raise self._damaged(error) from None
        return step

    def _damaged(self, error: Exception) -> CheckpointError:
        said = one_line(error) or type(error).__name__
        if isinstance(error, KeyError):
            said = f"no {said}"
        return CheckpointError(f"{self.file}: expected what a run saves, got {said}")
