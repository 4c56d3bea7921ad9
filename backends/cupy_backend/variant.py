"""Which kernels there are, and what is fixed when they are compiled."""

from itertools import product

import torch
from attrs import frozen

from ...core.errors import UnavailableError
from ...core.policies import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    Strict,
    Synthetic,
    Typical,
)

POLICIES: tuple[type[Policy], ...] = (
    Strict, Probabilistic, Block, Synthetic, Typical, RelaxedTopN, Fly,
)  # fmt: skip
"""In the order of the kernels' enumeration."""
LOGIT_TYPES = (torch.bfloat16, torch.float16, torch.float32)
"""The same of dtypes."""
MIXED = len(LOGIT_TYPES)

HEAD_BYTES = 256
"""Of shared memory before the bins, see cluster.cuh."""
BIN_BYTES = 3 * 4 * 2048

KERNEL_WARPS = {"rows": 8, "accept": 16, "logprobs": 8}
"""Warps of a CTA, by the kernels' names."""
CLUSTERED = ("rows", "logprobs")
"""Kernels whose CTAs share rows."""


def policy_number(policy: Policy) -> int:
    """What the kernels call a policy.

    Raises:
        UnavailableError: they have no such policy.
    """
    for number, kind in enumerate(POLICIES):
        if type(policy) is kind:
            return number
    names = ", ".join(kind.__name__ for kind in POLICIES)
    raise UnavailableError(
        f"policy: expected one of {names} for backend cupy, got {type(policy).__name__}"
    )


@frozen
class Variant:
    """One compiled form of every kernel.

    Attributes:
        logits: the number of the dtype of all logits, or MIXED.
        adjusted: some request has bias or penalties.
    """

    logits: int
    adjusted: bool = False

    @classmethod
    def of(cls, target: torch.dtype, draft: torch.dtype | None, *, adjusted: bool) -> "Variant":
        """For these dtypes; a draft without logits has none."""
        mixed = draft is not None and draft is not target
        return cls(MIXED if mixed else LOGIT_TYPES.index(target), adjusted)

    @property
    def logit_bytes(self) -> int:
        """Of a logit in shared memory, at most."""
        return 4 if self.adjusted or self.logits == MIXED else LOGIT_TYPES[self.logits].itemsize

    @property
    def macros(self) -> tuple[str, ...]:
        """Compiler options."""
        return f"-DVARIANT_LOGITS={self.logits}", f"-DVARIANT_ADJUSTED={int(self.adjusted)}"


def all_variants() -> tuple[Variant, ...]:
    """Every variant that a batch can ask for."""
    return tuple(Variant(*form) for form in product(range(MIXED + 1), (False, True)))
