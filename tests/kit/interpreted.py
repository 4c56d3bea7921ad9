"""Runs a module in Triton's interpreter: `python -m kit.interpreted MODULE ARGUMENT…`.

It is a process of its own, because the interpreter, or an absent GPU, must be chosen before Triton
is imported. The interpreter patches Triton's language anew for every helper that a kernel calls,
which takes three quarters of the time; here it does so once.
"""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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


def _once(patch: Callable[[Any], object]) -> Callable[[Any], Any]:
    import triton.language as tl  # noqa: PLC0415

    patched: set[tuple[bool, bool]] = set()

    def patch_once(fn: Any) -> Any:
        visible = [value for value in fn.__globals__.values() if value is tl or value is tl.core]
        languages = tl in visible, tl.core in visible
        if languages not in patched:
            patched.add(languages)
            patch(fn)
        # Nothing is restored: the process ends with its kernels.
        return SimpleNamespace(restore=lambda: None)

    return patch_once


def main() -> None:
    from triton.runtime import interpreter  # noqa: PLC0415

    interpreter._patch_lang = _once(interpreter._patch_lang)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
