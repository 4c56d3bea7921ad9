"""Launches, in order; shapes alone decide how many programs there are.

This module refuses to look at policies or parameters: see `plan`.
"""

from collections.abc import Callable
from typing import Any

from triton import next_power_of_2
from triton.language import constexpr

from ...core.errors import UnavailableError
from .arguments import (
    NO_ADJUSTMENTS,
    Arguments,
    Call,
    LogprobOutputs,
    Variant,
)
from .block import block_residual_kernel
from .draw import draw_kernel
from .filters import filter_kernel
from .logprobs import logprobs_kernel
from .lossy import lossy_requests_kernel, lossy_rows_kernel
from .open_rows import open_rows_kernel
from .plan import Plan
from .statistics import statistics_kernel

Launcher = Callable[..., Any]
TILE_BLOCKS = 4
TILE_WARPS = 2
WAVE = 132 * 16
"""Programs of stage 1 that a large device runs at once."""
WAVES = 8
MAXIMA_WAVES = 16
"""Waves that large batches take: programs of one must end before those of later rows begin."""
FILTERED_BLOCKS_PER_WARP = 128
OPEN_ROWS_PROGRAMS = 132 * 2
OPEN_ROWS_TILE_BLOCKS = 4
OPEN_ROWS_WARPS = 4
RESIDUAL_TILE_BLOCKS = 4
RESIDUAL_WARPS = 2
RESIDUAL_PROGRAMS = 132 * 32
DRAW_WARPS = 8
STRICT_DRAW_WARPS = 16


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


def launch_all(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Launch every kernel of a plan."""
    if plan.layout.num_reqs == 0:
        return
    launch_statistics(plan, arguments, launch)
    if plan.layout.has_filters:
        launch_filters(plan, arguments, launch)
    if plan.is_lossy:
        launch_lossy(plan, arguments, launch)
    else:
        launch_verification(plan, arguments, launch)
    if arguments.logprobs is not None:
        launch_logprobs(plan, arguments, arguments.logprobs, launch)


def launch_statistics(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Stage 1."""
    num_rows = plan.layout.num_reqs * plan.layout.num_rows
    tiles = -(-plan.layout.num_blocks // TILE_BLOCKS)
    tiles_per_part = -(-tiles // min(tiles, -(-_most_programs(plan) // num_rows)))
    parts = -(-tiles // tiles_per_part)
    launch(
        statistics_kernel,
        (parts * num_rows,),
        arguments.target,
        arguments.draft,
        arguments.requests,
        arguments.adjust,
        arguments.target_recipe,
        arguments.draft_recipe,
        arguments.scratch,
        NO_ADJUSTMENTS,
        arguments.raw,
        parts,
        tiles_per_part,
        arguments.stream,
        arguments.draft_index,
        NUM_DRAFTS=plan.num_drafts,
        ROWS=plan.layout.num_rows,
        WITH_MASSES=arguments.logprobs is not None or not plan.all_greedy,
        TILE=TILE_BLOCKS,
        WIDTH=plan.width,
        PART_WIDTH=next_power_of_2(tiles_per_part * TILE_BLOCKS),
        PLAIN=plan.is_plain,
        OVERLAPS=plan.overlaps,
        num_warps=TILE_WARPS,
    )


def _most_programs(plan: Plan) -> int:
    """Programs of stage 1; one wave, unless it would end unevenly or rows are skipped."""
    layout = plan.layout
    if not layout.skips_rows and layout.num_reqs * layout.num_rows <= WAVE // 4:
        return WAVE
    return WAVE * (MAXIMA_WAVES if plan.all_greedy else WAVES)


def _behind_another(plan: Plan) -> dict[str, bool]:
    """Options of a stage that may start before the one before it ends."""
    return {"OVERLAPS": True, "launch_pdl": True} if plan.overlaps else {"OVERLAPS": False}


def launch_logprobs(
    plan: Plan, arguments: Arguments, outputs: LogprobOutputs, launch: Launcher
) -> None:
    """Stage 6."""
    rows = plan.num_drafts + 1
    launch(
        logprobs_kernel,
        (plan.layout.num_reqs * rows,),
        arguments.target,
        arguments.requests,
        arguments.adjust,
        NO_ADJUSTMENTS,
        arguments.target_recipe,
        arguments.scratch,
        arguments.raw,
        arguments.outputs.token_ids,
        outputs.processed,
        outputs.emitted,
        outputs.top_token_ids,
        outputs.top,
        NUM_DRAFTS=plan.num_drafts,
        ROWS=plan.layout.num_rows,
        TOP_N=outputs.top.shape[-1],
        WIDTH=plan.width,
        num_warps=4,
    )


def launch_filters(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Stage 2, if some request filters."""
    layout = plan.layout
    num_rows = layout.num_reqs * layout.num_rows
    tiles = -(-layout.num_blocks // OPEN_ROWS_TILE_BLOCKS)
    launch(
        filter_kernel,
        (num_rows,),
        arguments.target,
        arguments.draft,
        arguments.requests,
        arguments.adjust,
        arguments.target_recipe,
        arguments.draft_recipe,
        arguments.scratch,
        NUM_DRAFTS=plan.num_drafts,
        ROWS=layout.num_rows,
        WIDTH=plan.width,
        KEY_SHIFT=plan.key_shift,
        num_warps=max(plan.width // FILTERED_BLOCKS_PER_WARP, 1),
        **_behind_another(plan),
    )
    launch(
        open_rows_kernel,
        (min(OPEN_ROWS_PROGRAMS, num_rows * tiles),),
        arguments.target,
        arguments.draft,
        arguments.requests,
        arguments.adjust,
        arguments.target_recipe,
        arguments.draft_recipe,
        arguments.scratch,
        NUM_DRAFTS=plan.num_drafts,
        ROWS=layout.num_rows,
        WIDTH=plan.width,
        KEY_SHIFT=plan.key_shift,
        TILE=OPEN_ROWS_TILE_BLOCKS,
        num_warps=OPEN_ROWS_WARPS,
        **_behind_another(plan),
    )


def launch_verification(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Stages 3 to 5 of lossless policies and of set rates."""
    if plan.layout.num_residuals:
        launch_residual(plan, arguments, launch)
    launch_draw(plan, arguments, launch)


def launch_lossy(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Stages 3 to 5 of lossy policies."""
    call = call_of(plan, arguments)
    num_reqs, leniency = plan.layout.num_reqs, plan.leniency
    launch(
        lossy_rows_kernel,
        (num_reqs * (plan.num_drafts + 1),),
        call,
        leniency.strictness,
        leniency.delta,
        leniency.top_n,
        KEY_SHIFT=plan.key_shift,
        num_warps=4,
    )
    launch(lossy_requests_kernel, (num_reqs,), call, leniency.window, num_warps=1)


def call_of(plan: Plan, arguments: Arguments) -> Call:
    """What the kernels of lossy policies are given; all statistics are known to them."""
    return Call(
        target=arguments.target,
        draft=arguments.draft,
        requests=arguments.requests,
        adjust=arguments.adjust,
        target_recipe=arguments.target_recipe,
        draft_recipe=arguments.draft_recipe,
        scratch=arguments.scratch,
        outputs=arguments.outputs,
        stream=arguments.stream,
        draft_index=arguments.draft_index,
        variant=Variant(
            policy=constexpr(plan.policy),
            num_drafts=constexpr(plan.num_drafts),
            num_rows=constexpr(plan.layout.num_rows),
            all_greedy=constexpr(plan.all_greedy),
            with_masses=constexpr(arguments.logprobs is not None or not plan.all_greedy),
            invalid=constexpr(arguments.invalid),
            width=constexpr(plan.width),
        ),
    )


def launch_residual(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Stages 2 to 4 of block verification."""
    layout = plan.layout
    num_residuals = layout.num_reqs * layout.num_residuals
    tiles = -(-layout.num_blocks // RESIDUAL_TILE_BLOCKS)
    parts = max(1, min(tiles, -(-RESIDUAL_PROGRAMS // num_residuals)))
    launch(
        block_residual_kernel,
        (num_residuals, parts),
        arguments.target,
        arguments.draft,
        arguments.requests,
        arguments.adjust,
        arguments.target_recipe,
        arguments.draft_recipe,
        arguments.scratch,
        NUM_DRAFTS=plan.num_drafts,
        ROWS=layout.num_rows,
        TILE=RESIDUAL_TILE_BLOCKS,
        num_warps=RESIDUAL_WARPS,
        **_behind_another(plan),
    )


def launch_draw(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Stages 2, 3 and 5."""
    launch(
        draw_kernel,
        (plan.layout.num_reqs,),
        arguments.target,
        arguments.draft,
        arguments.requests,
        arguments.adjust,
        arguments.target_recipe,
        arguments.draft_recipe,
        arguments.scratch,
        arguments.outputs,
        arguments.stream,
        arguments.draft_index,
        POLICY=plan.policy,
        RATES=plan.rates,
        NUM_DRAFTS=plan.num_drafts,
        ROWS=plan.layout.num_rows,
        ANY_GREEDY=plan.any_greedy,
        ALL_GREEDY=plan.all_greedy,
        INVALID=arguments.invalid,
        CHUNK=plan.chunk,
        WIDTH=plan.width,
        num_warps=STRICT_DRAW_WARPS if plan.policy == "strict" else DRAW_WARPS,
        **_behind_another(plan),
    )
