"""Inline assembly in Triton's interpreter: what our kernels use of PTX, in NumPy."""

import re
from collections.abc import Callable, Mapping
from ctypes import CDLL, c_float, c_uint8, c_uint32
from types import SimpleNamespace
from typing import Any

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype

GARBAGE, BASE = 0x5A5A5A5A, 0x400
"""What is in memory and registers at first; the address of shared memory."""
shared = np.zeros(0, np.uint32)
fmaf = CDLL("libm.so.6").fmaf
fmaf.argtypes, fmaf.restype = [c_float] * 3, c_float


def extreme(pick: Any) -> Callable[..., Any]:
    """The larger or smaller of bfloat16: -0 is below 0, and NaN gives way to a number."""

    def picked(a: Any, b: Any) -> Any:
        a_key, b_key = (half ^ (half >> 15 & 0x7FFF) for half in (a, b))
        a_is_nan, b_is_nan = ((half & 0x7FFF) > 0x7F80 for half in (a, b))
        return np.select([a_is_nan, b_is_nan, pick(a_key, b_key) == a_key], [b, a, a], b)

    return picked


def permuted(low: Any, high: Any, places: Any) -> Any:
    each = np.stack([low, high], 1).view(np.uint8)
    return np.stack([each[:, places[0] >> 4 * n & 7] for n in range(4)], 1).view(np.uint32)[:, 0]


def load(kind: Any, address: Any) -> Any:
    return np.array([kind.from_address(each).value for each in address.tolist()], np.uint32)


def store(address: Any, numbers: Any) -> None:
    for each, number in zip(address.tolist(), numbers.tolist(), strict=True):
        c_float.from_address(each).value = number


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "abs.bf16x2": lambda a: a & 0x7FFF,
    "add": np.add,
    "and": np.bitwise_and,
    "cvt.rn.f32": lambda a: a.astype(np.float32),
    "fma": lambda *given: np.frompyfunc(fmaf, 3, 1)(*given).astype(np.float32),
    "ld.global.b32": lambda address: load(c_uint32, address),
    "ld.global.u8": lambda address: load(c_uint8, address),
    "ld.shared": lambda address: shared[(address - BASE) // 4],
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: a.astype(np.int64) * b + c.view(np.int64),
    "max.bf16x2": extreme(np.maximum),
    "min.bf16x2": extreme(np.minimum),
    "mov": np.copy,
    "mul": np.multiply,
    "neg": np.negative,
    "or": np.bitwise_or,
    "popc": lambda a: np.unpackbits(a[:, None].view(np.uint8), axis=1).sum(1, np.uint32),
    "prmt": permuted,
    "red.shared.add": lambda address, number: np.add.at(shared, (address - BASE) // 4, number),
    "setp.eq": np.equal,
    "setp.ge": np.greater_equal,
    "setp.gt": np.greater,
    "setp.le.and": lambda a, b, c: (a <= b) & c,
    "setp.lt": np.less,
    "setp.ne": np.not_equal,
    "setp.neu": np.not_equal,
    "setp.neu.or": lambda a, b, c: (a != b) | c,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "st.global": store,
    "st.shared": lambda address, number: np.put(shared, (address - BASE) // 4, number),
    "st.shared.v4": lambda address, *four: np.put(
        shared, (address - BASE)[:, None] // 4 + np.arange(4), np.stack(four, 1)
    ),
    "sub": np.subtract,
    "xor": np.bitwise_xor,
}
TYPES = {"s32": np.int32, "f32": np.float32, "bf16x2": np.int16}
STATEMENT = re.compile(r"(?:@(!?)(\w+) )?(\w[.\w]*)([^;:]*)([;:])")


def run(text: str, registers: dict[str, Any]) -> None:
    """Run a text in as many threads as a register has numbers; those that jumped wait."""
    for name, size in re.findall(r"\.shared [^;]* (\w+)\[(\d+)\];", text):
        registers[name] = np.full_like(registers["$0"], BASE)
        shared.resize(int(size) // 4, refcheck=False)
        shared.fill(GARBAGE)
    awaited = np.full(len(registers["$0"]), "", "U8")
    body = re.sub(r"\s\.(reg|shared) [^;]*;", "", text)
    for negated, condition, operation, rest, end in STATEMENT.findall(body):
        names, active = re.findall(r"[$\w]+", rest), awaited == ""
        if condition:
            active &= registers[condition] ^ bool(negated)
        if end == ":":
            awaited[awaited == operation] = ""
        elif operation == "bra":
            awaited[active] = names[0]
        elif active.any():
            step(operation, names, registers, active)


def step(operation: str, names: list[str], registers: dict[str, Any], active: Any) -> None:
    stem, _, kind = operation.rpartition(".")
    has_result = not operation.startswith(("red.", "st."))
    given = []
    for name in names[has_result:]:
        if name not in registers:
            registers[name] = np.full_like(registers["$0"], int(re.sub("^0f", "0x", name), 0))
        own = registers[name][active]
        given.append(own.view(TYPES.get(kind, np.uint32)) if own.dtype == np.uint32 else own)
    result = (OPERATIONS.get(operation) or OPERATIONS[stem.removesuffix(".rn")])(*given)
    if has_result:
        dtype = {1: np.bool_, 8: np.uint64}.get(result.nbytes // active.sum(), np.uint32)
        target = registers.get(names[0], np.full(active.size, GARBAGE)).astype(dtype)
        target[active] = result.view(dtype)
        registers[names[0]] = target


def inline_asm(
    _: Any, text: str, constraints: str, values: Any, types: Any, _is_pure: bool, pack: int
) -> Any:
    """Run a text in threads that hold what those of a compiled kernel hold."""
    shape = values[0].data.shape
    each = [np.full(values[0].data.size // pack, GARBAGE, np.uint32)] * constraints.count("=")
    for value in values:
        size = np.uint64 if value.data.itemsize == 8 else np.uint32
        each += [*np.ascontiguousarray(value.data).reshape(-1, pack).view(size).T]
    assert len(each) == constraints.count(",") + 1
    for constraint, register in zip(constraints.split(","), each, strict=True):
        if constraint.isdigit():
            each[int(constraint)] = register
    registers = {f"${number}": register for number, register in enumerate(each)}
    run(text, registers)
    outputs, results = iter(registers.values()), []
    for kind in types:
        dtype = _get_np_dtype(kind)
        own = [next(outputs) for _ in range(pack * dtype.itemsize // 4)]
        results.append(TensorHandle(np.stack(own, 1).view(dtype).reshape(shape), kind.scalar))
    return SimpleNamespace(get_result=results.__getitem__)


InterpreterBuilder.create_inline_asm = inline_asm
