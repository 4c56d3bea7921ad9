"""The conformance kit on the Triton backend, through Triton's interpreter on the CPU."""

import pytest

from kit.interpreted import interpret

pytest.importorskip("triton")


@pytest.mark.slow
def test_the_interpreted_kernels_agree_with_the_reference() -> None:
    wishes = ["--backend", "triton", "--max-vocab-size", "40", "--batches", "2", "--device", "cpu"]
    interpret("acceptor.backends.conformance", *wishes)
