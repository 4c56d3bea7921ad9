"""Prints results: text coloured by kind of token, and small tables; or JSON for machines.

People's text is printed unchanged: nothing is markup or an emoji. Colours appear on a terminal
only. Tokens per second count decoding alone: loading, the prompt and printing are left out.
"""

import math
from collections.abc import Iterable
from typing import Any

from attrs import asdict, evolve, frozen
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ..backends.registry import Backend
from .decoder import Decoder
from .drafter import NoDrafter
from .engine.engine import Engine
from .engine.parts import MemoryPlan
from .request import FinishReason, GenerationRequest, GenerationResult, TokenKind

WARM_UP_TOKENS = 16
MIN_PIPE_WIDTH = 20
"""The least characters per line in a pipe: rich prints nothing if there are no columns."""


def new_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that prints text unchanged or, if quiet, nothing."""
    console = Console(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, MIN_PIPE_WIDTH)
    return console


@frozen
class Measured:
    """A result and how long it took."""

    result: GenerationResult
    decode_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens over the time of the steps; 0 if there were none."""
        num_tokens = len(self.result.token_ids)
        return num_tokens / self.decode_seconds if num_tokens else 0.0


def measure(engine: Engine, console: Console | None = None) -> Measured:
    """Decode an engine's one request to its end; print text in its colours once it is certain."""
    result = None
    for progress in engine:
        for fragment in progress.fragments:
            if console is not None:
                print_text(console, fragment.text, STYLES[fragment.kind])
        result = progress.result
    assert result is not None
    return Measured(result, engine.loop.decode_seconds)


def warm_up(decoder: Decoder, request: GenerationRequest) -> None:
    """Decode a little and discard it, so that the next measurement starts warm."""
    short = evolve(request, max_tokens=min(WARM_UP_TOKENS, request.max_tokens))
    measure(decoder.start([short]))


def measure_plain(decoder: Decoder, request: GenerationRequest) -> Measured:
    """Decode the same request through the same loop without drafts."""
    plain = evolve(decoder, drafter=NoDrafter())
    warm_up(plain, request)
    return measure(plain.start([request]))


STYLES = {
    TokenKind.ACCEPTED: "green",
    TokenKind.RECOVERED: "red",
    TokenKind.BONUS: "cyan",
    TokenKind.PLAIN: "default",
}
# Foreign text may hold terminal escapes; Unicode pictures of control characters replace them.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
# Those from 128 on, which have no pictures, begin escapes, too.
_PICTURES |= dict.fromkeys(range(128, 160), 0xFFFD)


def print_text(console: Console, text: str, style: str) -> None:
    """Print text without starting a new line."""
    # Text would turn tabs into spaces.
    segment = Segment(text.translate(_PICTURES), Style.parse(style))
    console.print(Segments([segment]), end="", soft_wrap=True)


def print_summary(
    console: Console, backend: str, decoder: Decoder, measured: Measured, plain: Measured | None
) -> None:
    """Print the small table that ends a generation, and what the colours mean."""
    table = Table.grid(padding=(0, 2))
    for name, value in _rows(backend, decoder, measured, plain):
        table.add_row(name, value.translate(_PICTURES))
    console.print("\n", table, sep="")
    if console.is_terminal and measured.result.statistics.num_drafts:
        kinds = (TokenKind.ACCEPTED, TokenKind.RECOVERED, TokenKind.BONUS)
        console.print(Text("  ").join(Text(kind, style=STYLES[kind]) for kind in kinds))


def _rows(
    backend: str, decoder: Decoder, measured: Measured, plain: Measured | None
) -> Iterable[tuple[str, str]]:
    result = measured.result
    yield "tokens/s", f"{measured.tokens_per_second:.1f} ({_how_measured(measured)})"
    if plain is not None:
        yield "plain tokens/s", f"{plain.tokens_per_second:.1f} ({_how_measured(plain)})"
        if plain.tokens_per_second > 0:
            yield "speed-up", f"{measured.tokens_per_second / plain.tokens_per_second:.2f} x"
    figures = result.statistics
    if figures.num_drafts:
        yield "acceptance rate", f"{figures.acceptance_rate:.1%}"
        yield "acceptance length", f"{figures.acceptance_length:.2f} tokens per draft"
        rates = "  ".join(f"{rate:.0%}" for rate in figures.acceptance_rate_per_pos)
        yield "rate per position", rates
        lossless = "lossless" if decoder.policy.lossless else "lossy"
        yield "policy", f"{decoder.policy.name} ({lossless})"
    if result.total_variation is not None:
        yield "total variation", f"{result.total_variation:.3f} per token"
    yield "backend", backend
    yield "forward", decoder.target.forward_name
    yield "seed", str(result.seed)
    yield "ended by", _ending(result)


def _how_measured(measured: Measured) -> str:
    num_tokens = len(measured.result.token_ids)
    return f"{num_tokens} tokens in {measured.decode_seconds:.2f} s"


def _ending(result: GenerationResult) -> str:
    error = _error_of(result)
    return str(result.finish_reason) + (f": {error}" if error else "")


def _error_of(result: GenerationResult) -> str | None:
    if result.finish_reason is not FinishReason.ERROR:
        return None
    return result.error or str(result.status.name).lower().replace("_", " ")


def as_json(
    backend: str, decoder: Decoder, measured: Measured, plain: Measured | None, memory: MemoryPlan
) -> dict[str, Any]:
    """The result as JSON values.

    `logprobs` and the plain speed are present only if asked for. The total variation is null if the
    policy reports none, the error if none ended the generation.
    """
    result, figures = measured.result, measured.result.statistics
    stats = {
        "num_drafts": figures.num_drafts,
        "num_draft_tokens": figures.num_draft_tokens,
        "num_accepted_tokens": figures.num_accepted_tokens,
        "acceptance_rate": figures.acceptance_rate,
        "acceptance_length": figures.acceptance_length,
        "acceptance_rate_per_pos": list(figures.acceptance_rate_per_pos),
        "tokens_per_second": measured.tokens_per_second,
        "policy": decoder.policy.name,
        "lossless": decoder.policy.lossless,
        "total_variation": result.total_variation,
        "backend": backend,
        "forward": decoder.target.forward_name,
    }
    if plain is not None:
        stats["plain_tokens_per_second"] = plain.tokens_per_second
    answer: dict[str, Any] = {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": str(result.finish_reason),
        "error": _error_of(result),
        "seed": result.seed,
        "stats": stats,
        "memory_bytes": asdict(memory),
    }
    if result.logprobs is not None:
        answer["logprobs"] = [
            {"logprob": _finite(one.emitted), "top": [[i, _finite(p)] for i, p in one.top]}
            for one in result.logprobs
        ]
    return answer


def _finite(logprob: float) -> float | None:
    # JSON has no infinity, and a synthetic policy can emit a token that the target excludes.
    return logprob if math.isfinite(logprob) else None


def print_backends(
    console: Console, backends: Iterable[Backend], device: str, no_triton: str | None
) -> None:
    """Print which backends and forwards can run on cuda or cpu, and what the others lack."""
    rows = [(backend.name, _state(backend, device), backend.summary) for backend in backends]
    state = "usable" if no_triton is None else f"unusable: {no_triton}"
    summary = "kernels for decode steps; else torch's libraries compute"
    table = Table.grid(padding=(0, 2))
    for row in (*rows, ("forward triton", state, summary)):
        name, *others = (text.translate(_PICTURES) for text in row)
        table.add_row(Text(name, style="bold"), *others)
    console.print(table)


def _state(backend: Backend, device: str) -> str:
    if not backend.missing:
        lacks_device = backend.needs_cuda and device != "cuda"
        return "installed; expects a CUDA device" if lacks_device else "installed"
    cure = f"; install with: {backend.install}" if backend.install else ""
    return f"missing {', '.join(backend.missing)}{cure}"
