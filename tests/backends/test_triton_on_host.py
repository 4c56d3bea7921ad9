"""Triton's kernels agree with the reference in its interpreter, whatever the rows hold."""

import pytest

from kit.interpreted import interpret

pytest.importorskip("triton")


@pytest.mark.slow
@pytest.mark.parametrize("check", ["thresholds", "search", "policies", "shards", "launches"])
def test_the_interpreted_kernels_are_right_about(check: str) -> None:
    interpret("kit.triton_on_host", check)
