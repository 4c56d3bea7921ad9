"""Launches, in order; shapes alone decide how many programs there are."""

from collections.abc import Callable
from typing import Any

from ...core.errors import UnavailableError
from .accept import ENTROPY, MOVED, SURVIVED
from .arguments import Call
from .block import block_kernel
from .decide import decide_kernel
from .logprobs import logprobs_kernel
from .plan import Plan
from .seen import seen_kernel
from .statistics import statistics_kernel
from .sums import sums_kernel
from .thresholds.counted import counts_kernel
from .thresholds.settled import thresholds_kernel

Launcher = Callable[..., Any]
"""Called with a kernel, its grid, its arguments, and options of Triton's by name."""

TILE = 4
"""Blocks that are read at once: two warps of 16-byte loads, four in flight for each thread."""

READ_WARPS = 2
MASKED_REGISTERS = 48
"""Of reading programs' threads with masks, at most: a few more cost a sixth of the programs that a
multiprocessor has at once."""

ADJUSTED_WARPS = 4
"""Where bias and penalties are loaded as well, which takes three times the registers."""

PROGRAMS_PER_PROCESSOR = 16
"""Programs of two warps that a multiprocessor has registers for: those of one wave."""

WAVES = 8
"""Waves of reading programs at most: the last one ends unevenly, and longer programs more so."""

COUNT_WARPS = 4
COUNT_REGISTERS = 48
COUNTS_PER_PROCESSOR = 10
"""Counting programs that a multiprocessor has registers for, with so many warps and registers of a
thread: it has 65,536. What looks at bins needs more, and seldom runs."""

ROW_WARPS = 4
"""Of programs that look at all blocks of a row: 151,936 tokens have 297."""

ROW_REGISTERS = 128
"""Of their threads, at most, where there is much to look at: a multiprocessor has sixteen such
warps then. What only takes the largest logit needs half of these."""


def start(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> Any:
    """Launch on the current stream; what Triton compiled for it, None in the interpreter.

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


def launch_all(plan: Plan, call: Call, num_processors: int, launch: Launcher) -> None:
    """Launch every kernel of a plan, on a device of so many multiprocessors."""
    if plan.layout.num_reqs:
        launch_statistics(plan, call, num_processors, launch)
        launch_decisions(plan, call, num_processors, launch)


def launch_statistics(plan: Plan, call: Call, num_processors: int, launch: Launcher) -> None:
    """Stage 1: afterwards the records hold the block statistics of every row."""
    layout, options = plan.layout, {"num_warps": READ_WARPS}
    rows = layout.num_rows - plan.variant.num_drafts * (plan.variant.policy == "relaxed")
    if layout.has_penalties:
        parts, tiles = _split(layout.num_reqs, layout.num_blocks, num_processors)
        launch(seen_kernel, (layout.num_reqs * parts, 1, 1), call, parts, tiles, TILE)
        options |= {"launch_pdl": True} if plan.variant.overlaps else {}
    if plan.is_adjusted:
        options["num_warps"] = ADJUSTED_WARPS
    elif call.masks.words is not None:
        options["maxnreg"] = MASKED_REGISTERS
    parts, tiles = _split(layout.num_reqs * rows, layout.num_blocks, num_processors)
    launch(
        statistics_kernel,
        (layout.num_reqs * rows * parts, 1, 1),
        call,
        parts,
        tiles,
        TILE,
        **options,
    )


def launch_decisions(plan: Plan, call: Call, num_processors: int, launch: Launcher) -> None:
    """All later stages, from block statistics, wherever these come from."""
    layout, behind = plan.layout, {"launch_pdl": True} if plan.variant.overlaps else {}
    of_rows = {"num_warps": ROW_WARPS, **behind}
    if plan.reads_draft or plan.variant.filters:
        of_rows["maxnreg"] = ROW_REGISTERS
    num_rows = layout.num_reqs * layout.num_rows
    num_verdicts = layout.num_reqs * layout.num_verdicts
    if plan.variant.filters:
        launch(thresholds_kernel, (num_rows, 1, 1), call, **of_rows)
        tiles = num_rows * -(-layout.num_blocks // TILE)
        programs = min(num_processors * COUNTS_PER_PROCESSOR, tiles)
        launch(
            counts_kernel,
            (programs, 1, 1),
            call,
            TILE,
            num_warps=COUNT_WARPS,
            maxnreg=COUNT_REGISTERS,
            **behind,
        )
    if plan.variant.is_lossy:
        _launch_sums(plan, call, num_processors, launch, behind)
    launch(decide_kernel, (num_verdicts, 1, 1), call, **of_rows)
    if plan.variant.policy == "block":
        steps = layout.num_reqs * max(plan.variant.num_drafts - 1, 1)
        parts, tiles = _split(steps, layout.num_blocks, num_processors)
        parts, tiles = (parts, tiles) if plan.reads_draft else (1, 0)
        grid = (steps * parts, 1, 1)
        launch(block_kernel, grid, call, parts, tiles, TILE, num_warps=ROW_WARPS, **behind)
    if layout.has_raw:
        launch(logprobs_kernel, (num_verdicts, 1, 1), call, num_warps=ROW_WARPS)


def _launch_sums(
    plan: Plan, call: Call, num_processors: int, launch: Launcher, behind: dict[str, bool]
) -> None:
    rows = plan.layout.num_reqs * plan.variant.num_drafts
    wanted = [] if plan.variant.policy == "relaxed" else [ENTROPY]
    if plan.reads_draft:
        all_survive = plan.variant.policy == "fly" and call.masks.words is None
        wanted += [MOVED] if all_survive else [SURVIVED, MOVED]
    if rows:
        parts, tiles = _split(rows, plan.layout.num_blocks, num_processors)
        for what in wanted:
            grid = (rows * parts, 1, 1)
            launch(
                sums_kernel,
                grid,
                call,
                parts,
                tiles,
                what.value,
                TILE,
                num_warps=READ_WARPS,
                **behind,
            )


def _split(num_rows: int, num_blocks: int, num_processors: int) -> tuple[int, int]:
    """Into how many parts each row is read, and how many tiles these have."""
    wave = num_processors * PROGRAMS_PER_PROCESSOR
    # One wave, unless it would be one of few long programs, which end unevenly.
    programs = wave if num_rows <= wave // 4 else wave * WAVES
    tiles = -(-num_blocks // TILE)
    tiles_per_part = -(-tiles // min(tiles, -(-programs // num_rows)))
    return -(-tiles // tiles_per_part), tiles_per_part
