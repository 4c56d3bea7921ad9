import pytest

from acceptor.adapters.lengths import CPU_LENGTHS, GPU_LENGTHS


@pytest.mark.parametrize(("max_len", "length"), [(1, 128), (128, 128), (129, 256)])
def test_slots_of_a_gpu_have_even_lengths(max_len: int, length: int) -> None:
    assert GPU_LENGTHS.of_slot(max_len) == length
    assert CPU_LENGTHS.of_slot(max_len) == max_len


@pytest.mark.parametrize(
    ("num_filled", "limit", "length"), [(1, 1024, 256), (257, 1024, 512), (257, 300, 300)]
)
def test_no_more_is_read_than_there_may_be(num_filled: int, limit: int, length: int) -> None:
    assert GPU_LENGTHS.read(num_filled, limit) == length
    assert CPU_LENGTHS.read(num_filled, limit) == num_filled
