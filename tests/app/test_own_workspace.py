"""A sampler's own workspace is as it must be at the beginning of every call."""

from typing import Any

import pytest
import torch
from torch import Tensor

from acceptor.app.own_workspace import OwnWorkspace
from acceptor.core.batch import SampleBatch

LOGITS = torch.zeros(1, 8)


class Fragile:
    """Counts in its workspace, and is interrupted before it has put things right."""

    def __init__(self) -> None:
        self.breaks_off = False

    def verify_workspace_size(self, *_: object) -> int:
        """As `sample_workspace_size`."""
        return 4

    def sample_workspace_size(self, *_: object) -> int:
        """A few numbers."""
        return 4

    def verify(self, *_: object, workspace: Tensor, **__: object) -> None:
        """As `sample`."""
        self.sample(workspace=workspace)

    def sample(self, *_: object, workspace: Tensor, **__: object) -> None:
        """Expect zeros."""
        assert not workspace.any()
        workspace += 1
        if self.breaks_off:
            raise KeyboardInterrupt
        workspace.zero_()


class Verified:
    """All that is looked at of a batch."""

    target_logits = LOGITS


@pytest.mark.parametrize("name", ["verify", "sample"])
def test_a_call_that_breaks_off_leaves_the_next_one_a_clean_workspace(name: str) -> None:
    sampler: Any = Fragile()
    own: Any = OwnWorkspace(sampler)
    sampled = SampleBatch(logits=LOGITS, positions=torch.zeros(1, dtype=torch.int64))
    arguments = (Verified(), None, None) if name == "verify" else (sampled, None)
    sampler.breaks_off = True
    with pytest.raises(KeyboardInterrupt):
        getattr(own, name)(*arguments)
    sampler.breaks_off = False
    getattr(own, name)(*arguments)
