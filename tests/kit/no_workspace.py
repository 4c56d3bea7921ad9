"""What samplers of tests share that need no workspace."""

from typing import Any


class NoWorkspace:
    """The sizes of a `Sampler`."""

    def verify_workspace_size(self, *_: Any, **__: Any) -> int:
        """None is needed."""
        return 0

    def sample_workspace_size(self, *_: Any, **__: Any) -> int:
        """None is needed."""
        return 0
