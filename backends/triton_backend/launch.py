"""The launches of a call, in order; only shapes decide how many programs there are."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from triton.language import constexpr

from ...core.errors import UnavailableError
from .accept import ENTROPY, MOVED, SURVIVED
from .block import block_stage
from .decide import decide_stage
from .logprobs import logprobs_stage
from .plan import Plan
from .quarters import TILE
from .statistics import seen_stage, statistics_stage
from .sums import sums_stage
from .thresholds.counted import counts_stage
from .thresholds.settled import thresholds_stage

Launcher = Callable[..., Any]
"""Called with a kernel, its grid, its arguments, and Triton's options by name."""


class Launch(NamedTuple):
    """A stage, its number of programs, its arguments after the call, and Triton's options."""

    stage: Any
    num_programs: int
    rest: tuple[Any, ...]
    options: dict[str, Any]


READ_WARPS = 2
READ_REGISTERS = 48
"""The most registers of a thread that reads whole rows: a few more would cost a sixth of the
programs that a multiprocessor runs at once."""
MORE_REGISTERS = 64
"""The same with bias, penalties, raw logprobs or rows that begin anywhere."""

SEEN_WARPS = 4

PROGRAMS_PER_PROCESSOR = 16
"""How many programs of two warps a multiprocessor has registers for: those of one wave."""

WAVES = 8
"""The most waves of reading programs: the last one ends unevenly, the more so the longer it is."""

COUNT_WARPS = 4
COUNT_TILE = constexpr(8)
"""Blocks that counting programs read at once: 16-byte loads, four in flight per thread."""

COUNT_REGISTERS = 64
COUNTS_PER_PROCESSOR = 8
"""How many counting programs a multiprocessor has registers for, with this many warps and registers
per thread: it has 65,536. Code that reads bins needs more, but seldom runs."""

ROW_WARPS = 4
"""The warps of programs that look at all blocks of a row: 151,936 tokens have 297."""

ROW_REGISTERS = 128
"""The most registers of their threads, if there is much to look at: a multiprocessor then has
sixteen such warps. Programs that only take the largest logit need half of these."""


def start(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> Any:
    """Launch on the current stream; returns the compiled kernel, or None in the interpreter.

    Raises:
        UnavailableError: the driver refuses the kernel.
    """
    try:
        return kernel[grid](*args, **options)
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if not said.startswith("Triton Error [CUDA]") or "out of memory" in said:
            raise
        raise UnavailableError(
            f"backend triton: expected a driver that runs its kernels, got {said}"
        ) from error


def launches(plan: Plan, num_processors: int) -> Iterator[Launch]:
    """All launches of a call; none without requests, as no kernel can take empty tensors."""
    if plan.layout.num_reqs:
        yield from statistics_launches(plan, num_processors)
        yield from decision_launches(plan, num_processors)


def statistics_launches(plan: Plan, num_processors: int) -> Iterator[Launch]:
    """Stage 1: fills the records with the block statistics of every row."""
    layout, reading, options = plan.layout, partial(_reading, plan, num_processors), {}
    if layout.has_penalties:
        how = {"num_warps": SEEN_WARPS, "maxnreg": READ_REGISTERS}
        yield reading(seen_stage, layout.num_reqs, **how)
        options = _behind(plan)
    does_more = plan.is_adjusted or plan.variant.realigns or layout.has_raw
    options["maxnreg"] = MORE_REGISTERS if does_more else READ_REGISTERS
    second = plan.variant.num_drafts * (plan.variant.policy == "relaxed")
    yield reading(statistics_stage, layout.num_rows - layout.num_reqs * second, **options)


def decision_launches(plan: Plan, num_processors: int) -> Iterator[Launch]:
    """All later stages, which use block statistics from any source."""
    layout, behind, reading = plan.layout, _behind(plan), partial(_reading, plan, num_processors)
    of_rows = {"num_warps": ROW_WARPS, **behind}
    if plan.reads_draft or plan.variant.filters:
        of_rows["maxnreg"] = ROW_REGISTERS
    if plan.variant.filters:
        yield Launch(thresholds_stage, layout.num_rows, (), of_rows)
        tiles = layout.num_rows * -(-layout.num_blocks // COUNT_TILE.value)
        programs = min(num_processors * COUNTS_PER_PROCESSOR, tiles)
        options = {"num_warps": COUNT_WARPS, "maxnreg": COUNT_REGISTERS, **behind}
        yield Launch(counts_stage, programs, (COUNT_TILE,), options)
    for what in _sums_of(plan):
        yield reading(sums_stage, layout.num_verdicts - layout.num_reqs, what, **behind)
    yield Launch(decide_stage, layout.num_verdicts, (), of_rows)
    if plan.variant.policy == "block":
        steps = layout.num_reqs * max(plan.variant.num_drafts - 1, 1)
        yield reading(block_stage, steps, num_warps=ROW_WARPS, **behind)
    if layout.has_raw:
        yield Launch(logprobs_stage, layout.num_verdicts, (), {"num_warps": ROW_WARPS})


def _behind(plan: Plan) -> dict[str, Any]:
    return {"launch_pdl": True} if plan.variant.overlaps else {}


def _sums_of(plan: Plan) -> list[Any]:
    if not plan.variant.is_lossy:
        return []
    wanted = [] if plan.variant.policy == "relaxed" else [ENTROPY]
    if plan.reads_draft:
        all_survive = plan.variant.policy == "fly" and not plan.is_masked
        wanted += [MOVED] if all_survive else [SURVIVED, MOVED]
    return wanted


def _reading(
    plan: Plan, num_processors: int, stage: Any, num_rows: int, *rest: Any, **options: Any
) -> Launch:
    """A launch of a stage that reads all blocks of rows, each row in equal parts."""
    wave = num_processors * PROGRAMS_PER_PROCESSOR
    if stage is seen_stage:
        # It has twice as many warps.
        wave //= 2
    # One wave, unless its programs would be few and long: they end unevenly.
    programs = wave if num_rows <= wave // 4 else wave * WAVES
    tiles = -(-plan.layout.num_blocks // TILE.value)
    # Without draft logits block verification reads nothing.
    if stage is block_stage and not plan.reads_draft:
        tiles = 1
    # Threads with few registers leave room for a few more programs in the wave.
    more = 0 if options.get("maxnreg") == MORE_REGISTERS else num_rows - 1
    tiles_per_part = -(-tiles // max(min(tiles, (programs + more) // max(num_rows, 1)), 1))
    parts = -(-tiles // tiles_per_part)
    options = {"num_warps": READ_WARPS, **options}
    return Launch(stage, num_rows * parts, (parts, tiles_per_part, *rest), options)
