"""The CUDA sources compile for every architecture we name, without a GPU or driver."""

import pytest
import torch

from acceptor.backends.cupy_backend.params import SIZE
from acceptor.backends.cupy_backend.variant import KernelPolicy, Variant

pytest.importorskip("cupy_backends")

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
VARIANTS = [
    (80, Variant(KernelPolicy.STRICT, FP16, greedy=True)),
    (90, Variant(KernelPolicy.STRICT, FP32, filtered=True, adjusted=True)),
    (100, Variant(KernelPolicy.PROBABILISTIC, BF16, FP32)),
    (90, Variant(KernelPolicy.PROBABILISTIC, BF16, BF16, filtered=True)),
    (100, Variant(KernelPolicy.BLOCK, FP16, FP16)),
    (80, Variant(KernelPolicy.RELAXED, BF16, BF16)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "variant"), VARIANTS)
def test_a_variant_compiles(architecture: int, variant: Variant) -> None:
    from acceptor.backends.cupy_backend.compiler import compile_kernel  # noqa: PLC0415

    compiled = compile_kernel("verify", variant.macros, architecture)
    assert compiled.code.startswith(b"\x7fELF")
    assert "Compiling entry function 'verify'" in compiled.log


def test_the_argument_fits_a_kernel_of_every_architecture() -> None:
    assert SIZE <= 4096
