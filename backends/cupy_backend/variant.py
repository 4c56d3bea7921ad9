"""The kernels, and what is fixed when they are compiled."""

from itertools import product, starmap

import torch
from attrs import frozen
from torch import Tensor

from ...core import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    Strict,
    Synthetic,
    Typical,
    UnavailableError,
)

LOSSY: tuple[type[Policy], ...] = (Typical, RelaxedTopN, Fly)
"""Policies whose rules read whole rows once more."""
POLICIES: tuple[type[Policy], ...] = (Strict, Probabilistic, Block, Synthetic, *LOSSY)
POLICY_MACRO = f"-DPOLICIES={','.join(policy.__name__.upper() for policy in POLICIES)}"
"""A compiler option: the kernels' enumeration of policies."""
LOGIT_TYPES = (torch.bfloat16, torch.float16, torch.float32)
"""A compiler option: the kernels' enumeration of dtypes."""
MIXED = len(LOGIT_TYPES)
BFLOAT16 = 0
NO_CHANGE, MASKS, ANY_CHANGE = range(3)
"""Changes of logits: none, masks, or also bias and penalties."""

COUNT_WORDS = 2 * (22 * 128 + 4) + 4
"""Bins of a row's counts, see cuda/counts.cuh, and what is said of a list, see cuda/lists.cuh."""
MAX_LISTED = 6144
"""The most logits that are listed one by one after the counts; in place of counts more fit."""


@frozen
class KernelForm:
    """The form of a kernel's CTAs.

    Attributes:
        num_warps: warps of a CTA.
        counts: whether it may count logits in shared memory, which a launch then requests.
        source: the kernel whose source it has, if only the number of warps differs.
    """

    num_warps: int
    counts: bool = True
    source: str = ""


KERNELS = {
    "marks": KernelForm(8, counts=False),
    "greedy": KernelForm(4, counts=False),
    "statistics": KernelForm(4, counts=False),
    "thresholds": KernelForm(8),
    "wide_thresholds": KernelForm(16, source="thresholds"),
    "closer": KernelForm(16),
    "accept": KernelForm(16),
    "outputs": KernelForm(16, counts=False),
    "logprobs": KernelForm(16),
}
"""The kernels, in the order of a step's launches."""
MARKED_BLOCKS = 8
"""The words of a CTA, see cuda/marks.cu."""


def policy_number(policy: Policy) -> int:
    """The kernels' number of a policy.

    Raises:
        UnavailableError: the kernels lack the policy.
    """
    if type(policy) in POLICIES:
        return POLICIES.index(type(policy))
    names = ", ".join(kind.__name__ for kind in POLICIES)
    raise UnavailableError(
        f"policy: expected one of {names} for backend cupy, got {type(policy).__name__}"
    )


@frozen
class Variant:
    """One compiled form of a kernel.

    Attributes:
        logits: the number of the dtype of all logits, or MIXED.
        change: the most that is changed in any row of logits.
    """

    logits: int
    change: int = NO_CHANGE

    @classmethod
    def of(cls, target: Tensor, draft: Tensor | None, change: int) -> "Variant":
        """The variant for logits of the target, and of drafts if these are read."""
        mixed = draft is not None and draft.dtype is not target.dtype
        wanted = cls(MIXED, ANY_CHANGE) if mixed else cls(LOGIT_TYPES.index(target.dtype), change)
        return wanted if wanted in FORMS else cls(wanted.logits, ANY_CHANGE)

    def of_kernel(self, kernel: str) -> "Variant":
        """The variant of a kernel that serves this one."""
        if kernel == "marks":
            return Variant(MIXED, ANY_CHANGE)
        if kernel == "greedy" and self.logits != BFLOAT16:
            return Variant(self.logits, ANY_CHANGE)
        return self

    @property
    def count_bytes(self) -> int:
        """Shared memory that a counting CTA requests beyond what its kernel declares."""
        lists = self.change == ANY_CHANGE and self.logits in (BFLOAT16, MIXED)
        return 4 * (COUNT_WORDS + (MAX_LISTED if lists else 0))

    @property
    def macros(self) -> tuple[str, ...]:
        """The compiler options."""
        return f"-DVARIANT_LOGITS={self.logits}", f"-DVARIANT_CHANGE={self.change}"


FORMS = (
    *starmap(Variant, product(range(MIXED), (NO_CHANGE, ANY_CHANGE))),
    Variant(BFLOAT16, MASKS),
    Variant(MIXED, ANY_CHANGE),
)
"""The variants that batches need."""
