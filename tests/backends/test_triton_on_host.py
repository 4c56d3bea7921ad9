"""Triton's kernels in its interpreter on the CPU, whatever the rows hold."""

import pytest

from kit.interpreted import interpret

pytest.importorskip("triton")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("check", ["thresholds", "search", "policies", "shards", "launches"])
def test_the_interpreted_kernels_are_right_about(check: str) -> None:
    interpret("kit.triton_on_host", check)


def test_the_interpreted_kernels_conform() -> None:
    options = ["--backend", "triton", "--max-vocab-size", "40", "--batches", "2", "--device", "cpu"]
    interpret("acceptor.backends.conformance", *options)
