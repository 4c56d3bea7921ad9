"""NVRTC: CUDA C++ to machine code, at run time and without a driver.

It refuses to guess an architecture: the caller names it.
"""

from collections.abc import Sequence

from attrs import frozen

from ...core.errors import UnavailableError
from .sources import program, sources

INSTALL = "pip install 'acceptor[cupy]'"
WARPS = {
    "wide": 16, "narrow": 16, "rowwise": 8, "pieces": 4, "pieces_end": 16,
    "greedy_pieces": 2, "greedy_pieces_end": 8, "pair_pieces": 3, "pair_pieces_end": 16,
    "logprobs": 16,
}  # fmt: skip
"""Of a CTA of each kernel."""
OPTIONS = ("-std=c++17", "-default-device", "--ptxas-options=-v")


def form_of(kernel: str) -> tuple[str, ...]:
    """Compiler options that differ between kernels."""
    return (
        f"-DKERNEL_WARPS={WARPS[kernel]}",
        f"-DKERNEL_MEETS_IN_MEMORY={int(kernel == 'narrow')}",
        f"-DKERNEL_MEETS_TWICE={int(kernel in ('wide', 'pair_pieces_end'))}",
    )


def compiler_version() -> str:
    """NVRTC's version.

    Raises:
        UnavailableError: CuPy or NVRTC is missing.
    """
    try:
        from cupy_backends.cuda.libs import nvrtc  # noqa: PLC0415 (heavy, and may be missing)

        major, minor = nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise UnavailableError(
            f"backend cupy: cannot use NVRTC ({error}); install with: {INSTALL}"
        ) from error
    return f"{major}.{minor}"


@frozen
class Compiled:
    """What NVRTC makes of a kernel.

    Attributes:
        code: machine code, a cubin.
        log: what the assembler says of registers, memory and spills.
    """

    code: bytes
    log: str


def compile_kernel(kernel: str, macros: Sequence[str], architecture: int) -> Compiled:
    """Compile one kernel.

    Args:
        kernel: name of a `.cu` file.
        macros: its variant.
        architecture: compute capability, 90 for sm_90.

    Raises:
        UnavailableError: CuPy or NVRTC is missing, or NVRTC refuses.
    """
    options = (f"-arch=sm_{architecture}", *OPTIONS, *macros, *form_of(kernel))
    return _compile((kernel,), options, code=True)


def check_kernels(kernels: Sequence[str], macros: Sequence[str], architecture: int) -> None:
    """Check that kernels of one variant are valid, in one go and without making code.

    Raises:
        UnavailableError: CuPy or NVRTC is missing, or NVRTC refuses.
    """
    options = (f"-arch=compute_{architecture}", "-fdevice-syntax-only", *OPTIONS[:2], *macros)
    _compile(kernels, options, code=False)


def _compile(kernels: Sequence[str], options: Sequence[str], *, code: bool) -> Compiled:
    compiler_version()
    from cupy_backends.cuda.libs import nvrtc  # noqa: PLC0415 (heavy; it is there)

    headers = sources()
    handle = nvrtc.createProgram(
        program(*kernels),
        f"{kernels[0]}.program.cu",
        [text.encode() for text in headers.values()],
        [name.encode() for name in headers],
    )
    try:
        nvrtc.compileProgram(handle, options)
        # CuPy takes off the last byte, as if it ended a string; disassemblers miss it.
        cubin = nvrtc.getCUBIN(handle) + bytes(1) if code else b""
        compiled = Compiled(cubin, nvrtc.getProgramLog(handle))
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(handle)
        raise UnavailableError(
            f"backend cupy: NVRTC refuses {', '.join(kernels)}: {error}\n{log}"
        ) from error
    finally:
        nvrtc.destroyProgram(handle)
    return compiled
