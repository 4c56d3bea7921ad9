"""Compiles CUDA C++ to machine code with NVRTC, at run time and without a driver."""

from functools import cache
from importlib.resources import files

from ...core.errors import UnavailableError
from .variant import KERNELS, POLICY_MACRO, Variant

INSTALL = "pip install 'acceptor[cupy]'"
OPTIONS = ("-std=c++17", "-default-device", POLICY_MACRO)


@cache
def sources() -> dict[str, str]:
    """The CUDA sources of this package by file name."""
    folder = sorted((files(__package__) / "cuda").iterdir(), key=lambda entry: entry.name)
    named = (entry for entry in folder if entry.name.endswith((".cu", ".cuh")))
    return {entry.name: entry.read_text(encoding="utf-8") for entry in named}


def options_of(kernel: str, variant: Variant, architecture: int) -> tuple[str, ...]:
    """The compiler options of a kernel."""
    warps = f"-DKERNEL_WARPS={KERNELS[kernel].num_warps}"
    return f"-arch=sm_{architecture}", *OPTIONS, *variant.macros, warps


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


def compile_kernel(kernel: str, variant: Variant, architecture: int) -> bytes:
    """Compile one kernel to machine code, a cubin.

    Args:
        kernel: name of a `.cu` file.
        variant: its variant.
        architecture: compute capability, 90 for sm_90.

    Raises:
        UnavailableError: CuPy or NVRTC is missing, or NVRTC refuses.
    """
    compiler_version()
    from cupy_backends.cuda.libs import nvrtc  # noqa: PLC0415 (heavy; it is there)

    headers = sources()
    handle = nvrtc.createProgram(
        f'#include "builtins.cuh"\n#include "{KERNELS[kernel].source or kernel}.cu"\n',
        f"{kernel}.program.cu",
        [text.encode() for text in headers.values()],
        [name.encode() for name in headers],
    )
    try:
        nvrtc.compileProgram(handle, options_of(kernel, variant, architecture))
        # CuPy drops the last byte as if it ended a string; disassemblers need it.
        code: bytes = nvrtc.getCUBIN(handle) + bytes(1)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(handle)
        raise UnavailableError(f"backend cupy: NVRTC refuses {kernel}: {error}\n{log}") from error
    finally:
        nvrtc.destroyProgram(handle)
    return code
