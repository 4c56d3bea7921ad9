"""Attention's launches have scratch memory, and blocks that shared memory holds."""

import pytest

pytest.importorskip("triton")

from acceptor.adapters.few_tokens import attend
from acceptor.adapters.few_tokens.forward import HEAD_DIMS


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("programs", [1, 8, 32, 33, 128, 512])
def test_a_launch_is_cut_to_what_there_is(programs: int, head_dim: int) -> None:
    cut = attend.cut_of(programs, head_dim)
    assert cut.programs <= attend.PROGRAMS
    assert cut.block * head_dim <= attend.MOST_KEYS


def test_a_short_cache_is_not_split_among_many_requests() -> None:
    assert attend.cut_of(128, 128).least * attend.cut_of(128, 128).block >= 256
    assert attend.cut_of(8, 128).least == 1
