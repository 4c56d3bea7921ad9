"""Runs a module in Triton's interpreter: `python -m kit.interpreted MODULE ARGUMENT…`.

It is a process of its own, because the interpreter, or an absent GPU, must be chosen before Triton
is imported. The interpreter patches Triton's language anew for every helper that a kernel calls,
and makes types and constants anew for every operation, which takes most of the time; here it does
so once.
"""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

_WITHOUT_GPU = """
import sys
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class NoDriver:
    def get_current_target(self): return GPUTarget("cuda", int(sys.argv[1]), 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

driver.set_active(NoDriver())
"""


def interpret(*command: str) -> None:
    """Run a module in such a process."""
    run_python("-m", "kit.interpreted", *command, TRITON_INTERPRET="1")


def compile_for(capability: str, code: str, cache: Path) -> None:
    """Run code that compiles kernels for an absent GPU, which `NoDriver` describes."""
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    run_python("-c", _WITHOUT_GPU + code, capability, **environment)


def run_python(*arguments: str, **environment: str) -> str:
    """What a Python process writes to stdout; if it fails, the error holds all of its output."""
    paths = [path for path in sys.path if path] + [os.environ.get("PYTHONPATH", "")]
    python_path = os.pathsep.join(["tests", *paths])
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-2000:]
    return finished.stdout


def _once(do: Callable[..., Any], key: Callable[..., Hashable]) -> Callable[..., Any]:
    done: dict[Hashable, Any] = {}

    def do_once(*arguments: Any, **named: Any) -> Any:
        asked = key(*arguments, **named)
        if asked not in done:
            done[asked] = do(*arguments, **named)
        return done[asked]

    return do_once


def main() -> None:
    from triton import language  # noqa: PLC0415
    from triton.language import core  # noqa: PLC0415
    from triton.language.semantic import TritonSemantic  # noqa: PLC0415
    from triton.runtime import interpreter  # noqa: PLC0415

    def languages(fn: Any) -> tuple[bool, bool]:
        names = {id(value) for value in fn.__globals__.values()}
        return id(language) in names, id(core) in names

    # Nothing is restored: the process ends with its kernels.
    interpreter._LangPatchScope.restore = lambda _scope: None
    for owner, name, key in (
        (interpreter, "_patch_lang", languages),
        (interpreter, "_get_np_dtype", lambda tt_dtype: tt_dtype.name),
        (core.block_type, "with_element_ty", lambda block, scalar: (block.name, scalar.name)),
        (TritonSemantic, "scalar_constant", lambda _, value, dtype: (repr(value), dtype.name)),
    ):
        setattr(owner, name, _once(getattr(owner, name), key))
    # Checks of overflow, which assert nothing outside a debugger.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(
        sanitize_overflow=False
    )
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
