"""Which kernel a batch needs: what is fixed when it is compiled.

A frozen value, its own cache key. This module refuses to compile anything.
"""

from enum import Enum, unique
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


@unique
class KernelPolicy(Enum):
    """The policies as cuda/variant.cuh names them."""

    STRICT = "STRICT"
    PROBABILISTIC = "PROBABILISTIC"
    BLOCK = "BLOCK"
    SYNTHETIC = "SYNTHETIC"
    TYPICAL = "TYPICAL"
    RELAXED = "RELAXED"
    FLY = "FLY"


_POLICIES: dict[type[Policy], KernelPolicy] = {
    Strict: KernelPolicy.STRICT,
    Probabilistic: KernelPolicy.PROBABILISTIC,
    Block: KernelPolicy.BLOCK,
    Synthetic: KernelPolicy.SYNTHETIC,
    Typical: KernelPolicy.TYPICAL,
    RelaxedTopN: KernelPolicy.RELAXED,
    Fly: KernelPolicy.FLY,
}
LOGIT_TYPES = {torch.bfloat16: "Bf16", torch.float16: "Fp16", torch.float32: "float"}


def kernel_policy(policy: Policy) -> KernelPolicy:
    """What the kernels call a policy.

    Raises:
        UnavailableError: they have no such policy.
    """
    known = _POLICIES.get(type(policy))
    if known is None:
        names = ", ".join(kind.__name__ for kind in _POLICIES)
        raise UnavailableError(
            f"policy: expected one of {names} for backend cupy, got {type(policy).__name__}"
        )
    return known


@frozen
class Variant:
    """One compiled form of the verification kernel.

    Attributes:
        policy: which rule it follows.
        target: dtype of target logits.
        draft: dtype of draft logits; None when none are read.
        filtered: some request has a filter.
        adjusted: some request has bias or penalties.
        greedy: every request is greedy.
    """

    policy: KernelPolicy
    target: torch.dtype
    draft: torch.dtype | None = None
    filtered: bool = False
    adjusted: bool = False
    greedy: bool = False

    @property
    def macros(self) -> tuple[str, ...]:
        """Compiler options."""
        draft = self.target if self.draft is None else self.draft
        values = {
            "POLICY": self.policy.value,
            "TARGET": LOGIT_TYPES[self.target],
            "DRAFT": LOGIT_TYPES[draft],
            "DENSE": str(int(self.draft is not None)),
            "FILTERED": str(int(self.filtered)),
            "ADJUSTED": str(int(self.adjusted)),
            "GREEDY": str(int(self.greedy)),
        }
        return tuple(f"-DVARIANT_{name}={value}" for name, value in values.items())

    @property
    def name(self) -> str:
        """For people: policy, dtypes and what is compiled in."""
        dtypes = [str(d).removeprefix("torch.") for d in (self.target, self.draft) if d]
        flags = [name for name in ("filtered", "adjusted", "greedy") if getattr(self, name)]
        return " ".join((self.policy.value.lower(), "/".join(dtypes), *flags))


def all_variants(dtypes: tuple[torch.dtype, ...] = tuple(LOGIT_TYPES)) -> tuple[Variant, ...]:
    """Every variant whose models share a dtype."""
    return tuple(
        Variant(policy, dtype, dtype if dense else None, filtered, adjusted, greedy)
        for policy, dtype, dense, filtered, adjusted, greedy in product(
            KernelPolicy, dtypes, (False, True), (False, True), (False, True), (False, True)
        )
        if not (dense and (greedy or policy in _WITHOUT_DRAFT_LAWS)) and not (greedy and filtered)
    )


_WITHOUT_DRAFT_LAWS = (KernelPolicy.STRICT, KernelPolicy.SYNTHETIC)
