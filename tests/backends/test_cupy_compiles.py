"""The CUDA sources compile for every architecture we name, without a GPU or driver."""

from itertools import product

import pytest

from acceptor.backends.cupy_backend.compiler import compile_kernel
from acceptor.backends.cupy_backend.variant import BFLOAT16, FORMS, KERNELS, MIXED, Variant

pytest.importorskip("cupy_backends")

ARCHITECTURES = (80, 90, 100)
MOST_KERNELS = 60


def all_kernels() -> tuple[tuple[str, Variant], ...]:
    """Every kernel in every variant that a batch can need."""
    unasked = {"closer": BFLOAT16, "greedy": MIXED}
    forms = {
        (name, form.of_kernel(name))
        for name, form in product(KERNELS, FORMS)
        if unasked.get(name) != form.logits
    }
    return tuple(sorted(forms, key=str))


def test_there_are_few_kernels() -> None:
    assert len(all_kernels()) <= MOST_KERNELS


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(len(KERNELS)))
def test_kernels_become_code_for_every_architecture(turn: int) -> None:
    # Each kernel in another variant, for another architecture.
    name = list(KERNELS)[turn]
    variants = [variant for kernel, variant in all_kernels() if kernel == name]
    variant, architecture = variants[3 * turn % len(variants)], ARCHITECTURES[turn % 3]
    assert compile_kernel(name, variant, architecture)
