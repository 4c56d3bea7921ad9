"""The CUDA sources compile for every architecture we name, without a GPU or driver."""

import pytest
import torch
from attrs import evolve

from acceptor.backends.cupy_backend.compiler import WARPS, form_of
from acceptor.backends.cupy_backend.params import MAX_RATES, size
from acceptor.backends.cupy_backend.sources import sources
from acceptor.backends.cupy_backend.variant import (
    LOGIT_TYPES,
    KernelPolicy,
    Variant,
    all_variants,
)

pytest.importorskip("cupy_backends")

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
ARCHITECTURES = (80, 90, 100)
CODE = [
    (80, "wide", Variant(KernelPolicy.STRICT, FP16, greedy=True)),
    (100, "narrow", Variant(KernelPolicy.STRICT, FP32, adjusted=True)),
    (90, "wide", Variant(KernelPolicy.PROBABILISTIC, BF16, FP32)),
    (80, "pieces", Variant(KernelPolicy.STRICT, BF16)),
    (80, "pieces_end", Variant(KernelPolicy.STRICT, BF16)),
    (80, "greedy_pieces", Variant(KernelPolicy.STRICT, BF16, greedy=True)),
    (100, "greedy_pieces_end", Variant(KernelPolicy.STRICT, FP32, greedy=True)),
    (100, "pieces_end", Variant(KernelPolicy.STRICT, FP16)),
    (80, "pair_pieces", Variant(KernelPolicy.PROBABILISTIC, BF16, FP32)),
    (90, "pair_pieces", Variant(KernelPolicy.PROBABILISTIC, FP16, FP16, filtered=True)),
    (80, "pair_pieces_end", Variant(KernelPolicy.PROBABILISTIC, BF16, BF16, filtered=True)),
    (100, "pair_pieces_end", Variant(KernelPolicy.PROBABILISTIC, FP32, BF16)),
    (89, "narrow", Variant(KernelPolicy.PROBABILISTIC, BF16, BF16, filtered=True, has_room=False)),
    (90, "logprobs", Variant(KernelPolicy.STRICT, BF16, filtered=True)),
]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", KernelPolicy)
def test_every_variant_is_valid(policy: KernelPolicy, architecture: int) -> None:
    from acceptor.backends.cupy_backend.compiler import check_kernels  # noqa: PLC0415

    for variant in all_variants():
        if variant.policy is policy:
            check_kernels(variant.kernels, variant.macros, architecture)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_other_forms_are_valid(architecture: int) -> None:
    """What reports logprobs, and what takes a berthed kernel's place where it has no room."""
    from acceptor.backends.cupy_backend.compiler import check_kernels  # noqa: PLC0415

    for target in LOGIT_TYPES:
        for adjusted in (False, True):
            variant = Variant(KernelPolicy.STRICT, target, filtered=True, adjusted=adjusted)
            check_kernels(["logprobs"], variant.macros, architecture)
    berthed = [variant for variant in all_variants() if variant.berths]
    assert berthed
    for variant in berthed:
        without = evolve(variant, has_room=False)
        assert without.macros != variant.macros
        check_kernels(without.kernels, without.macros, architecture)


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "kernel", "variant"), CODE)
def test_a_variant_becomes_code(architecture: int, kernel: str, variant: Variant) -> None:
    from acceptor.backends.cupy_backend.compiler import compile_kernel  # noqa: PLC0415

    compiled = compile_kernel(kernel, variant.macros, architecture)
    assert compiled.code.startswith(b"\x7fELF")
    assert f"Compiling entry function '{kernel}'" in compiled.log


def test_an_invalid_variant_is_refused() -> None:
    from acceptor.backends.cupy_backend.compiler import check_kernels  # noqa: PLC0415
    from acceptor.core.errors import UnavailableError  # noqa: PLC0415

    macros = Variant(KernelPolicy.STRICT, BF16).macros
    broken = [macro.replace("STRICT", "UNHEARD_OF") for macro in macros]
    with pytest.raises(UnavailableError, match="UNHEARD_OF"):
        check_kernels(["wide"], broken, 90)


def test_the_argument_fits_a_kernel_of_every_architecture() -> None:
    assert size(MAX_RATES) <= 4096


def test_all_of_a_cta_meet_in_one_way() -> None:
    meetings = {name for name, text in sources().items() if "__syncthreads" in text}
    assert meetings == {"lanes.cuh"}
    twice = {kernel for kernel in WARPS if "-DKERNEL_MEETS_TWICE=1" in form_of(kernel)}
    assert twice == {"wide", "pair_pieces_end"}
