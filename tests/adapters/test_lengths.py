import pytest

from acceptor.adapters.lengths import CPU_LENGTHS, GPU_LENGTHS
from acceptor.adapters.slot_blocks import BLOCK_LEN


@pytest.mark.parametrize(
    ("max_len", "length"), [(1, BLOCK_LEN), (BLOCK_LEN, BLOCK_LEN), (BLOCK_LEN + 1, 2 * BLOCK_LEN)]
)
def test_slots_are_whole_blocks_on_a_gpu(max_len: int, length: int) -> None:
    assert GPU_LENGTHS.of_slot(max_len) == length
    assert CPU_LENGTHS.of_slot(max_len) == max_len


@pytest.mark.parametrize(
    ("num_filled", "limit", "length"), [(1, 1024, 256), (257, 1024, 512), (257, 300, 300)]
)
def test_no_more_is_read_than_there_may_be(num_filled: int, limit: int, length: int) -> None:
    assert GPU_LENGTHS.read(num_filled, limit) == length
    assert CPU_LENGTHS.read(num_filled, limit) == num_filled
