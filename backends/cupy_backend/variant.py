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
from .shape import ByPieces, ByRows


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
_BY_ROWS = {KernelPolicy.STRICT: ByRows(1, 0), KernelPolicy.BLOCK: ByRows(2, 4)}
# By kernel and filters, as measured where there is room for 264 CTAs.
_BY_PIECES = {
    ("pieces", False): ByPieces(32, ((63 / 264, 3),)),
    ("greedy_pieces", False): ByPieces(12, ((7 / 264, 2),)),
    ("pair_pieces", False): ByPieces(32, ((1 / 3, 4),)),
    ("pair_pieces", True): ByPieces(32, ((1 / 2, 3 / 4), (1, 4))),
}
_BERTHS = 24 * 1024  # twelve warps' two blocks of bfloat16
SHARED_WITH_BERTHS = 2 * (49 * 1024 + _BERTHS)
"""Of two narrow CTAs at most: what each declares, what the driver adds, and berths."""
_RELIEF = 36
"""Blocks; as measured for 32 and 64 strict requests."""
_WITHOUT_RELIEF = (KernelPolicy.BLOCK, KernelPolicy.SYNTHETIC)
_LOSSY = (KernelPolicy.TYPICAL, KernelPolicy.RELAXED, KernelPolicy.FLY)
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
        has_room: a processor has memory for two narrow CTAs with berths; else none are asked for.
    """

    policy: KernelPolicy
    target: torch.dtype
    draft: torch.dtype | None = None
    filtered: bool = False
    adjusted: bool = False
    greedy: bool = False
    has_room: bool = True

    @property
    def has_wide(self) -> bool:
        """Whether several CTAs may share a request; what lossy policies ask for needs one CTA."""
        return self.policy not in _LOSSY

    @property
    def by_rows(self) -> ByRows | None:
        """When CTAs read a row or a part of one each; None if there is no kernel for that."""
        if self.filtered or self.adjusted or self.greedy:
            return None
        return _BY_ROWS.get(self.policy)

    @property
    def pieces(self) -> str:
        """The kernel whose CTAs read pieces of rows, or ""; one of that name and `_end` follows."""
        if self.adjusted:
            return ""
        if self.policy is KernelPolicy.STRICT and not self.filtered:
            return "greedy_pieces" if self.greedy else "pieces"
        pairs = self.policy is KernelPolicy.PROBABILISTIC and self.draft is not None
        return "pair_pieces" if pairs else ""

    @property
    def by_pieces(self) -> ByPieces | None:
        """When CTAs read pieces of rows; None if there is no kernel for that."""
        return _BY_PIECES.get((self.pieces, self.filtered))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The verification kernels that exist in this variant."""
        pieces = self.pieces
        there = (
            ("wide", self.has_wide),
            ("rowwise", self.by_rows is not None),
            (pieces, pieces != ""),
            (f"{pieces}_end", pieces != ""),
            ("narrow", True),
        )
        return tuple(kernel for kernel, is_there in there if is_there)

    @property
    def relief(self) -> int | None:
        """See `LaunchShape.wide`; None where any CTA may finish, or nobody knows how many rows."""
        if self.filtered or self.adjusted or self.policy in _WITHOUT_RELIEF:
            return None
        return _RELIEF if self.policy is KernelPolicy.STRICT and not self.greedy else 0

    @property
    def berths(self) -> int:
        """Bytes that a narrow CTA asks for, for blocks on their way; 0: they are in registers."""
        is_plain = not self.adjusted and not self.greedy and self.has_room
        if self.policy is not KernelPolicy.PROBABILISTIC or not self.filtered or not is_plain:
            return 0
        return _BERTHS if self.target is self.draft is torch.bfloat16 else 0

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
            "BERTHS": str(self.berths),
        }
        return tuple(f"-DVARIANT_{name}={value}" for name, value in values.items())

    @property
    def name(self) -> str:
        """For people: policy, dtypes and what is compiled in."""
        dtypes = [str(d).removeprefix("torch.") for d in (self.target, self.draft) if d]
        flags = [name for name in ("filtered", "adjusted", "greedy") if getattr(self, name)]
        return " ".join((self.policy.value.lower(), "/".join(dtypes), *flags))


def all_variants() -> tuple[Variant, ...]:
    """Every variant that a batch can ask for."""
    dtypes, either = tuple(LOGIT_TYPES), (False, True)
    drafts = (None, *dtypes)
    combined = (
        Variant(policy, target, draft, filtered, adjusted, greedy)
        for policy in KernelPolicy
        for target, draft in product(dtypes, drafts)
        for filtered, adjusted, greedy in product(either, either, either)
    )
    return tuple(variant for variant in combined if _can_be_asked_for(variant))


def _can_be_asked_for(variant: Variant) -> bool:
    # Under the policies that look at the draft's law, a batch of greedy requests is STRICT.
    ignores_drafts = variant.policy in _WITHOUT_DRAFT_LAWS
    if variant.greedy and (variant.filtered or not ignores_drafts):
        return False
    return variant.draft is None or not ignores_drafts


_WITHOUT_DRAFT_LAWS = (KernelPolicy.STRICT, KernelPolicy.SYNTHETIC)
