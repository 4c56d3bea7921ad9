"""A child process for computations that untrusted files cause; it is kept from job to job.

A template or a pattern is a program: it may run forever, take all memory or crash. In the child it
ends within limits, and what native code prints does not reach the user.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import RLock, Timer
from time import monotonic
from typing import Any

from attrs import define, field

from ..core.errors import UnavailableError
from .error_text import one_line, unfit

WORKER = Path(__file__).with_name("confined_worker.py")
QUIET = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}


@define(eq=False)
class Confinement:
    """Does jobs one at a time, for any thread; a forked process gets a child of its own.

    The first job starts the child, and so does the next after a job that ended it. The child ends
    with this process.

    Attributes:
        patience: seconds to wait for an answer before the child, perhaps stopped, is ended.
    """

    patience: float = 300.0
    lock: Any = field(factory=RLock, init=False)
    _child: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    _owner: int = field(default=0, init=False)

    def run(self, job: str, *arguments: object) -> Mapping[str, Any]:
        """Do one of `confined_worker.JOBS`.

        Returns:
            The `value`; or an `error` on one line, and the `kind` of error.

        Raises:
            UnavailableError: no process can be started.
            TypeError: an argument cannot be written as JSON.
        """
        line = json.dumps([job, arguments], default=_as_dict).encode() + b"\n"
        with self.lock:
            try:
                return self._exchange(line)
            except BaseException:
                # Otherwise the next job would read this one's answer.
                self.close()
                raise

    def close(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None and self._owner == os.getpid():
            child.kill()
            child.communicate()

    def _exchange(self, line: bytes) -> Mapping[str, Any]:
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        watch, end = Timer(self.patience, child.kill), monotonic() + self.patience
        watch.daemon = True
        watch.start()
        try:
            child.stdin.write(line)
            child.stdin.flush()
            answer = child.stdout.readline()
        except BrokenPipeError:
            answer = b""
        finally:
            watch.cancel()
        if answer.endswith(b"\n"):
            said: dict[str, Any] = json.loads(answer)
            return said | {"error": one_line(said["error"])} if "error" in said else said
        code = child.wait()
        self.close()
        if monotonic() > end:
            return {"kind": "limit", "error": f"no answer for {self.patience:g} s"}
        return {"kind": "limit", "error": _why_it_ended(code)}

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._owner != os.getpid() or self._child.poll() is not None:
            self.close()
            self._child, self._owner = _start(), os.getpid()
        return self._child


def _start() -> "subprocess.Popen[bytes]":
    # The child searches the same path as this process, changes since its start included.
    path = os.pathsep.join(filter(None, sys.path))
    try:
        return subprocess.Popen(  # noqa: S603, our own file
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | QUIET | {"PYTHONPATH": path},
        )
    except (OSError, ValueError) as error:
        expected = "a child process for templates and tokenizers"
        raise unfit("confinement", expected, error, UnavailableError) from None


def _why_it_ended(code: int) -> str:
    if code == -signal.SIGPROF:
        return "more time than it may take"
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"a crash or more memory than it may take ({how})"


def _as_dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__}")


confinement = Confinement()
"""This process's own child."""

atexit.register(confinement.close)
if hasattr(os, "register_at_fork"):
    # A fork in the middle of a job would copy a held lock and a half-written line.
    os.register_at_fork(
        before=confinement.lock.acquire,
        after_in_parent=confinement.lock.release,
        after_in_child=confinement.lock.release,
    )
