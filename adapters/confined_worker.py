"""The child process of `acceptor.adapters.confinement`: renders templates, encodes texts.

It is run by its path, because importing the package would import torch. A job that takes more time
than it may ends the process; so does one whose native code finds no memory.
"""

import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from runpy import run_path
from typing import Any

MEGABYTE = 2**20
SECONDS, MEMORY, OUTPUT = 2.0, 256 * MEGABYTE, 4 * MEGABYTE
"""Of one job: CPU time, so that a busy machine fails nobody, and address space beside what the
process has before it."""
LOAD_SECONDS, LOAD_MEMORY_PER_BYTE = 20.0, 40
"""Of loading a tokenizer; large ones take some seconds, and many times their file's size."""
ENCODE_SECONDS_PER_BYTE, ENCODE_MEMORY_PER_BYTE = 5e-6, 512
"""More, for long texts."""
DECODED_AT_ONCE = 512
MAX_ERROR = 1000
"""Characters: an error may quote all that a template has made."""


@contextmanager
def limits(seconds: float, num_bytes: int) -> Iterator[None]:
    """End the process after so much CPU time; raise `MemoryError` behind so much more memory."""
    # What a job has left in cycles would count as there before the next one.
    gc.collect()
    limit_memory(num_bytes)
    # Nobody handles the signal, so that native code cannot hold it up.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        limit_memory(None)
        signal.setitimer(signal.ITIMER_PROF, 0)


def limit_memory(num_bytes: int | None) -> None:
    """So much above what there is now, or any; does nothing where the system is not Linux."""
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415, not everywhere

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = hard
    if num_bytes is not None:
        num_pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft = num_pages * resource.getpagesize() + num_bytes
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@cache
def sandbox() -> Mapping[str, Any]:
    """The module beside this one, by its path."""
    return run_path(str(Path(__file__).with_name("template_sandbox.py")))


@lru_cache(maxsize=4)
def compiled(text: str) -> Any:
    """A template."""
    return sandbox()["ChatEnvironment"]().from_string(text)


def compile_template(text: str) -> None:
    """Find out whether it is a template."""
    sandbox()
    with limits(SECONDS, MEMORY):
        compiled(text)


def render(text: str, variables: Mapping[str, Any]) -> str:
    """The prompt that a template makes of its variables."""
    sandbox()
    with limits(SECONDS, MEMORY):
        prompt: str = compiled(text).render(variables)
        num_bytes = len(prompt.encode(errors="surrogatepass"))
    if num_bytes > OUTPUT:
        raise ValueError(f"a prompt of more than {OUTPUT // MEGABYTE} MB")
    return prompt


@lru_cache(maxsize=4)
def loaded(path: str, size: int, changed: int) -> Any:
    """A tokenizer, after its decoder has been tried on all of its tokens."""
    import tokenizers  # noqa: PLC0415, not needed for templates

    file = Path(path).stat()
    if (file.st_size, file.st_mtime_ns) != (size, changed):
        raise ValueError("a file that has changed since it was loaded")
    with limits(LOAD_SECONDS, MEMORY + LOAD_MEMORY_PER_BYTE * size):
        backend = tokenizers.Tokenizer.from_file(path)
        backend.no_truncation()
        backend.no_padding()
        token_ids = sorted(backend.get_vocab(with_added_tokens=True).values())
        for start in range(0, len(token_ids), DECODED_AT_ONCE):
            # What it says of bad tokens is not of interest; that it panics is.
            with suppress(Exception):
                backend.decode(token_ids[start : start + DECODED_AT_ONCE])
    return backend


def load(*file: Any) -> None:
    """Find out whether it is a tokenizer."""
    loaded(*file)


def encode(file: list[Any], text: str, add_special_tokens: bool) -> list[int]:
    """Token ids of a text."""
    backend, size = loaded(*file), len(text)
    with limits(SECONDS + ENCODE_SECONDS_PER_BYTE * size, MEMORY + ENCODE_MEMORY_PER_BYTE * size):
        token_ids: list[int] = backend.encode(text, add_special_tokens=add_special_tokens).ids
    return token_ids


JOBS: Mapping[str, Callable[..., object]] = {
    job.__name__: job for job in (compile_template, render, load, encode)
}


def answer(name: str, arguments: list[Any]) -> dict[str, Any]:
    """What a job returns, or what it raised."""
    try:
        return {"value": JOBS[name](*arguments)}
    except MemoryError:
        return {"kind": "MemoryError", "error": "more memory than it may take"}
    # A panic of native code is no Exception.
    except BaseException as error:  # noqa: BLE001, whatever it is, it is told
        with limits(SECONDS, MEMORY):
            return {"kind": type(error).__name__, "error": str(error)[:MAX_ERROR]}


def main() -> None:
    """Do one job after the other, a line each, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    for line in sys.stdin.buffer:
        replies.write(json.dumps(answer(*json.loads(line))).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
