"""The child process of `acceptor.adapters.confinement`: it renders templates and encodes texts.

It is run by its path, because importing the package would import torch. A job that exceeds its time
ends the process; so does one whose native code runs out of memory.
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
"""A job's limits: CPU time, which a busy machine does not use up, and address space beyond what the
process had before."""
LOAD_SECONDS, LOAD_MEMORY_PER_BYTE = 20.0, 40
"""Limits for loading a tokenizer; large ones take seconds, and many times their file's size."""
ENCODE_SECONDS_PER_CHAR, ENCODE_MEMORY_PER_CHAR = 5e-6, 512
"""Added to the limits for long texts."""
DECODED_AT_ONCE = 512
MAX_ERROR = 1000
"""In characters: an error may quote everything that a template has produced."""


@contextmanager
def limits(seconds: float, num_bytes: int) -> Iterator[None]:
    """End the process after this CPU time; raise `MemoryError` beyond this much more memory."""
    # Garbage in cycles would count as memory that was there before the job.
    gc.collect()
    limit_memory(num_bytes)
    # The signal has no handler, so native code cannot delay it.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        limit_memory(None)
        signal.setitimer(signal.ITIMER_PROF, 0)


def limit_memory(num_bytes: int | None) -> None:
    """Limit memory to this much above the present use, or lift the limit; Linux only."""
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
    """Load the module beside this one, by its path."""
    return run_path(str(Path(__file__).with_name("template_sandbox.py")))


@lru_cache(maxsize=4)
def compiled(text: str) -> Any:
    """A compiled template."""
    return sandbox()["ChatEnvironment"]().from_string(text)


def compile_template(text: str) -> None:
    """Check that a text is a template."""
    sandbox()
    with limits(SECONDS, MEMORY):
        compiled(text)


def render(text: str, variables: Mapping[str, Any]) -> str:
    """Render a template with its variables."""
    sandbox()
    with limits(SECONDS, MEMORY):
        prompt: str = compiled(text).render(variables)
        num_bytes = len(prompt.encode(errors="surrogatepass"))
    if num_bytes > OUTPUT:
        raise ValueError(f"a prompt of more than {OUTPUT // MEGABYTE} MB")
    return prompt


@lru_cache(maxsize=4)
def loaded(path: str, size: int, changed: int) -> Any:
    """A tokenizer whose decoder has been tried on all of its tokens."""
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
            # Errors about bad tokens do not matter here; panics do.
            with suppress(Exception):
                backend.decode(token_ids[start : start + DECODED_AT_ONCE])
    return backend


def load(*file: Any) -> None:
    """Check that a file is a tokenizer."""
    loaded(*file)


def encode(file: list[Any], text: str, add_special_tokens: bool) -> list[int]:
    """Encode a text as token ids."""
    backend, size = loaded(*file), len(text)
    with limits(SECONDS + ENCODE_SECONDS_PER_CHAR * size, MEMORY + ENCODE_MEMORY_PER_CHAR * size):
        token_ids: list[int] = backend.encode(text, add_special_tokens=add_special_tokens).ids
    return token_ids


JOBS: Mapping[str, Callable[..., object]] = {
    job.__name__: job for job in (compile_template, render, load, encode)
}


def answer(name: str, arguments: list[Any]) -> dict[str, Any]:
    """Run a job: its result, or the error that it raised."""
    try:
        return {"value": JOBS[name](*arguments)}
    except MemoryError:
        return {"kind": "MemoryError", "error": "more memory than it may take"}
    # A panic in native code is not an Exception.
    except BaseException as error:  # noqa: BLE001, every error is reported
        with limits(SECONDS, MEMORY):
            return {"kind": type(error).__name__, "error": str(error)[:MAX_ERROR]}


def main() -> None:
    """Do one job per line of input, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    for line in sys.stdin.buffer:
        replies.write(json.dumps(answer(*json.loads(line))).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
