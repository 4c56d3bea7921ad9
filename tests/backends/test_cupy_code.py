"""What the assembler makes of the kernels that speed depends on: nothing spilled, short loops."""

import struct

import pytest
import torch

from acceptor.backends.cupy_backend.assembly import Assembly, find_disassembler, spilled_bytes
from acceptor.backends.cupy_backend.variant import KernelPolicy, Variant

pytest.importorskip("cupy_backends")
pytestmark = pytest.mark.slow

BF16 = torch.bfloat16
HOT = [
    Variant(KernelPolicy.STRICT, BF16, greedy=True),
    *(Variant(KernelPolicy.STRICT, BF16, filtered=filtered) for filtered in (False, True)),
    *(
        Variant(policy, BF16, BF16, filtered=filtered)
        for policy in (KernelPolicy.PROBABILISTIC, KernelPolicy.BLOCK)
        for filtered in (False, True)
    ),
]
MOST_INSTRUCTIONS_PER_LOGIT = 8.25
LOADS_ON_THEIR_WAY = 4
LINE_BYTES = 128


@pytest.mark.parametrize(
    ("kernel", "variant"),
    [(kernel, variant) for variant in HOT for kernel in variant.kernels],
    ids=lambda part: part if isinstance(part, str) else part.name,
)
def test_hot_kernels_spill_nothing_and_stream_cheaply(kernel: str, variant: Variant) -> None:
    from acceptor.backends.cupy_backend.compiler import compile_kernel  # noqa: PLC0415

    compiled = compile_kernel(kernel, variant.macros, 90)
    assert spilled_bytes(compiled.log, kernel) == 0
    disassembler = find_disassembler()
    if disassembler is None:
        pytest.skip("the disassembler comes with CUDA or the Triton wheel")
    assembly = Assembly.of(compiled.code, disassembler)
    if kernel.endswith("pieces_end"):
        assert not assembly.streams
        return
    assert 1 < assembly.instructions_per_logit() <= MOST_INSTRUCTIONS_PER_LOGIT
    assert assembly.vector_loads() >= LOADS_ON_THEIR_WAY


@pytest.mark.parametrize("architecture", [80, 90, 100])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_greedy_pieces_of_other_dtypes_spill_nothing(dtype: torch.dtype, architecture: int) -> None:
    from acceptor.backends.cupy_backend.compiler import compile_kernel  # noqa: PLC0415

    variant = Variant(KernelPolicy.STRICT, dtype, greedy=True)
    log = compile_kernel("greedy_pieces", variant.macros, architecture).log
    assert spilled_bytes(log, "greedy_pieces") == 0


def test_blocks_on_their_way_begin_where_a_line_of_shared_memory_does() -> None:
    """Elsewhere a warp's copies touch one line more, by which the narrow kernel took 17 µs more."""
    from acceptor.backends.cupy_backend.compiler import compile_kernel  # noqa: PLC0415

    variant = Variant(KernelPolicy.PROBABILISTIC, BF16, BF16, filtered=True)
    assert variant.berths > 0
    code = compile_kernel("narrow", variant.macros, 90).code
    assert shared_alignment(code, "narrow") == LINE_BYTES


def shared_alignment(code: bytes, kernel: str) -> int:
    """Of what a kernel declares and asks for: the ELF section's."""
    (headers,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, headers + i * size) for i in range(count)]
    names_begin = sections[names][4]
    wanted = f".nv.shared.{kernel}\0".encode()
    (found,) = (s for s in sections if code[names_begin + s[0] :].startswith(wanted))
    return int(found[8])


def test_the_shortest_way_round_a_loop_is_counted() -> None:
    texts = (
        "S2R R0, SR_TID.X", "@P1 LDG.E.NA.128 R4, [R2]", "@P0 BRA 0x0040", "FADD R1, R1, R1",
        "REDUX.MAX.S32 UR4, R2", "@!P1 BRA 0x0010", "EXIT",
    )  # fmt: skip
    assembly = Assembly(tuple(range(0, 0x70, 16)), texts)
    assert assembly.instructions_per_logit() == 4 / 16
    assert assembly.vector_loads() == 1
    assert assembly.code_bytes == 7 * 16


def test_a_block_is_done_on_every_architecture() -> None:
    for done in ("REDUX.MAX.S32 UR4, R2", "CREDUX.MAX.S32 UR4, R2"):
        texts = ("@P1 LDG.E.NA.128 R4, [R2]", done, "@P0 BRA 0x0000", "EXIT")
        assembly = Assembly(tuple(range(0, 0x40, 16)), texts)
        assert assembly.instructions_per_logit() == 3 / 16


def test_lanes_finish_blocks_where_warps_do_not() -> None:
    texts = (
        "@P1 LDG.E.NA.128 R4, [R2]", "VIMNMX.U32 R3, R3, R1, !PT",
        "@P2 LDG.E.NA.128 R8, [R2]", "VIMNMX.U32 R3, R3, R4, !PT",
        "@P0 BRA 0x0000", "REDUX.MAX UR4, R2", "EXIT",
    )  # fmt: skip
    assembly = Assembly(tuple(range(0, 0x70, 16)), texts)
    assert assembly.streams
    assert assembly.instructions_per_logit() == 5 / 2 / 16
