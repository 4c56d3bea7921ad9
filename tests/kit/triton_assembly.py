"""Kernels' assembly beside their branches for the interpreter: `python -m kit.triton_assembly`."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, interpreter_builder

from acceptor.backends.triton_backend import adjust
from acceptor.backends.triton_backend.assembly import INTERPRETED, look_up, store_here
from acceptor.backends.triton_backend.logits import widened
from acceptor.backends.triton_backend.thresholds import bins
from acceptor.backends.triton_backend.units import from_key
from kit import ptx  # noqa: F401

ONE, INFINITY, SIGN = 0x3F800000, 0x7F800000, 0x80000000
SIZES = (0, 1, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, INFINITY - 1, INFINITY, 0x7FC00000)
BOUNDS = (0, 1, 0x10000, 0x3A800000, 0x3A810001, ONE, 0x427C0001, 0x42800000, INFINITY - 1)
SPANS = ((ONE, 0), (ONE, 4095), (ONE, 4096), (-1, 6), (-1793, 3585), (-INFINITY, 2 * INFINITY - 1))
noise = np.random.default_rng(7)
interpreter_builder.set_grid_dim(1, 1, 1)
interpreter_builder.set_grid_idx(0, 0, 0)


def tensor(array: Any, kind: Any = tl.float32) -> tl.tensor:
    whole = tl.block_type(kind, [*array.shape]) if array.ndim else kind
    return tl.tensor(TensorHandle(np.atleast_1d(array), kind), whole)


def floats(bits: Any) -> Any:
    return np.asarray(bits, np.uint32).view(np.float32)


def pointers(array: Any, kind: Any, places: Any = 0) -> tl.tensor:
    addresses = np.asarray(array.ctypes.data + array.itemsize * places, np.uint64)
    return tensor(addresses, tl.pointer_type(kind))


def compare(action: Callable[..., Any], *given: Any) -> None:
    """Both branches give the same bits."""
    results = []
    for is_interpreted in (True, False):
        INTERPRETED.value = is_interpreted
        results.append(action(*given).view(np.int32))
    np.testing.assert_array_equal(*results)


def with_repeats(number: int) -> Any:
    """All numbers below one, and as many at random, so that no bin is taken for another."""
    return np.concatenate([noise.permutation(number), noise.integers(0, number, number)])


def counted(count: Callable[..., Any], dropped: Any, *given: Any) -> Any:
    numbers, row = np.zeros(bins.BINS.value, np.int32), SimpleNamespace(slot=0)
    call = SimpleNamespace(scratch=SimpleNamespace(bins=pointers(numbers, tl.int32)))
    own = bins.reserve_own()
    bins.clear_own(own)
    count(call, row, own, *given)
    bins.add_up(call, row, own, count is not bins.count_keys, dropped)
    return numbers


def listed(blocks: Any, wanted: Any) -> Any:
    own, rank = bins.reserve_own(), tensor(np.cumsum(wanted).astype(np.int32), tl.int32)
    bins.put_blocks(own, tensor(blocks, tl.int32), rank, tensor(wanted, tl.int1))
    nth = tensor(np.arange(1, 65, dtype=np.int32), tl.int32)
    return bins.listed_blocks(own, nth, tensor(blocks, tl.int32), rank).handle.data


def count_upper(call: Any, row: Any, own: Any, logits: Any, low: Any) -> None:
    halves = bins.upper_halves(tensor(logits), low)
    bins.count_halves(call, row, own, halves, low, tensor(floats(SIGN | INFINITY)))


def count_raw(call: Any, row: Any, own: Any, logits: Any, low: Any, value: Any) -> None:
    # The interpreter itself is wrong about denormals of bfloat16.
    halves = (logits.view(np.uint32) >> 16).astype(np.uint16)
    given = tensor(logits) if INTERPRETED.value else tensor(halves, tl.bfloat16)
    bins.count_halves(call, row, own, given, low, value)


def check_halves(bits: int) -> None:
    logits = floats(with_repeats(1 << 16) << 16)
    odd = floats(logits.view(np.uint32) | noise.choice([0, 1, 0x8000, 0xFFFF], logits.size))
    low = tensor(floats(bits))
    compare(counted, count_upper, -1, odd, low)
    are_raw, value, dropped = bins.value_before(low, tensor(floats(0)), tensor(floats(ONE)), True)
    if are_raw:
        # Where no bin is dropped, -inf may count.
        spared = (dropped.handle.data < bins.BINS.value) | (logits > -np.inf)
        compare(counted, count_raw, dropped, np.where(spared, logits, floats(0)), low, value)


def check_keys(first: int, distance: int) -> None:
    ends = np.array([first, first + distance], np.int32)
    low, high = (from_key(tensor(end, tl.int32), 0) for end in ends)
    place = with_repeats(1 << 14)
    keys = first + (place // 3 << max(distance.bit_length() - 12, 0)) + place % 3 - 1
    logits = from_key(tensor(keys.astype(np.int32), tl.int32), 0).handle.data
    logits[: 2 * len(SIZES)] = floats([sign | size for sign in (0, SIGN) for size in SIZES])
    compare(counted, bins.count_keys, -1, tensor(logits), low, high)


def penalized(logits: Any, bits: Any, counts: Any, numbers: Any) -> Any:
    outputs = pointers(counts, tl.int32)
    requests = SimpleNamespace(slot_ids=None, output_counts=outputs, counts_stride=0)
    request = tensor(np.array(0, np.int32), tl.int32)
    row = SimpleNamespace(request=request, penalties=[*map(tensor, numbers)])
    ids = np.arange(logits.size, dtype=np.int32)
    given = (tensor(each, tl.int32) for each in (ids, ids // 8, bits))
    call = SimpleNamespace(requests=requests)
    return adjust.penalized(call, row, tensor(logits), *given).handle.data


def check_penalized(repetition: Any, presence: float, frequency: float) -> None:
    """Logits of all sizes but the smallest and largest; some quotients are nearly ties."""
    logits = floats(noise.integers(27 << 23, 200 << 23, 1 << 15) | noise.choice([0, SIGN], 1 << 15))
    middles = (noise.integers(1 << 24, 1 << 25, 1 << 14) | 1) * 2.0 ** noise.integers(-99, 50)
    logits[: middles.size] = middles * repetition
    logits[-len(SIZES) :] = floats([SIGN | size for size in SIZES])
    groups = noise.integers(0, 256, logits.size // 8) * noise.choice([0, 1], logits.size // 8)
    counts = noise.integers(0, 3, logits.size).astype(np.int32)
    numbers = np.array([repetition, 1 / repetition, presence, frequency], np.float32)
    compare(penalized, logits, np.repeat(groups, 8).astype(np.int32), counts, numbers)


def stored(values: Any, wanted: Any) -> Any:
    out = np.zeros(values.size, np.float32)
    places = pointers(out, tl.float32, np.where(wanted, np.arange(values.size), 1 << 40))
    store_here(places, tensor(values), tensor(wanted, tl.int1))
    return out


def looked_up(table: Any, places: Any, wanted: Any) -> Any:
    there = tensor(places, tl.int32), tensor(wanted, tl.int1)
    return look_up(pointers(table, tl.uint8), *there, 255).handle.data


def check_others() -> None:
    halves = noise.permutation(1 << 16).astype(np.uint16)
    INTERPRETED.value = False
    wide = widened(tensor(halves, tl.bfloat16)).handle.data
    np.testing.assert_array_equal(wide.view(np.uint32), halves.astype(np.uint32) << 16)
    places = noise.permutation(1 << 12).astype(np.int32)
    wanted = places % 3 != 0
    compare(stored, floats(places + ONE), wanted)
    compare(listed, np.sort(places[:128]), wanted[:128])
    beyond = np.where(wanted, places, -1 << 30).astype(np.int32)
    compare(looked_up, places.astype(np.uint8), beyond, wanted)


if __name__ == "__main__":
    check_others()
    for bound in BOUNDS:
        check_halves(bound)
        check_halves(SIGN | bound)
    for span in SPANS:
        check_keys(*span)
    for penalty in np.array([1e-6, 0.3, 0.9, 1.0000001, 1.1, 1.2, 2, 7, 1e6], np.float32):
        check_penalized(penalty, 0.0, 0.0)
        check_penalized(penalty, 0.3, -0.7)
