"""Launches, in order; shapes alone decide how many programs there are.

This module refuses to look at policies or parameters: see `plan`.
"""

from collections.abc import Callable
from typing import Any

from triton.language import constexpr

from ...core.output import Status
from .arguments import (
    NO_ADJUSTMENTS,
    NO_DRAFT,
    NO_RECIPE,
    Call,
    LogprobOutputs,
    Variant,
)
from .call_arguments import Arguments
from .filters import filter_kernel
from .logprobs import logprobs_kernel
from .lossy import lossy_requests_kernel, lossy_rows_kernel
from .plan import Plan
from .read_rows import statistics_kernel
from .verify import verify_kernel

Launcher = Callable[..., Any]
TILE_BLOCKS = 8
PROGRAMS = 132 * 64
NUM_WARPS = 4
RESIDUAL_TILE_BLOCKS = 4
RESIDUAL_PROGRAMS = 132 * 16


def start(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> Any:
    """Launch on the current stream; returns the compiled kernel."""
    return kernel[grid](*args, **options)


def launch_all(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Launch every kernel of a plan."""
    if plan.layout.num_reqs == 0:
        return
    call = call_of(arguments)
    if not plan.reads_while_judging:
        launch_statistics(plan, call, launch)
    if plan.layout.has_filters:
        launch_filters(plan, arguments, launch)
    if plan.is_lossy:
        launch_lossy(plan, call, launch)
    else:
        launch_verify(plan, call, launch)
    if arguments.logprobs is not None:
        launch_logprobs(plan, arguments, arguments.logprobs, launch)


def variant_of(plan: Plan, invalid: Status, with_logprobs: bool) -> Variant:
    """What kernels are compiled for, as constants.

    Args:
        plan: what the call needs.
        invalid: the status of a request whose target row is unusable.
        with_logprobs: somebody asks for logprobs.
    """
    return Variant(
        policy=constexpr(plan.policy),
        tests=constexpr(plan.tests_draft),
        rates=tuple(map(constexpr, plan.rates)),
        num_drafts=constexpr(plan.num_drafts),
        num_rows=constexpr(plan.layout.num_rows),
        num_residuals=constexpr(plan.layout.num_residuals),
        any_greedy=constexpr(plan.any_greedy),
        all_greedy=constexpr(plan.all_greedy),
        with_masses=constexpr(with_logprobs or not plan.all_greedy),
        reads=constexpr(plan.reads_while_judging),
        invalid=constexpr(int(invalid)),
        tile=constexpr(TILE_BLOCKS),
        residual_tile=constexpr(RESIDUAL_TILE_BLOCKS),
        width=constexpr(plan.width),
    )


def call_of(arguments: Arguments) -> Call:
    """What most kernels are given."""
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
        variant=arguments.variant,
    )


def launch_statistics(plan: Plan, call: Call, launch: Launcher) -> None:
    """Stage 1 on its own: nothing is judged."""
    num_rows = plan.layout.num_reqs * call.variant.num_rows.value
    parts, tiles_per_part = split(plan.layout.num_blocks, TILE_BLOCKS, PROGRAMS, num_rows)
    launch(statistics_kernel, (parts * num_rows,), call, parts, tiles_per_part, num_warps=NUM_WARPS)


def launch_verify(plan: Plan, call: Call, launch: Launcher) -> None:
    """Stages 1 and 3 to 5, or the latter alone where rows have been read."""
    layout = plan.layout
    parts, tiles_per_part, num_units = 1, 1, layout.num_reqs * (plan.num_drafts + 1)
    if plan.reads_while_judging:
        num_units = layout.num_reqs * layout.num_rows
        parts, tiles_per_part = split(layout.num_blocks, TILE_BLOCKS, PROGRAMS, num_units)
    num_residuals = layout.num_reqs * layout.num_residuals
    residual_parts, _ = split(
        layout.num_blocks, RESIDUAL_TILE_BLOCKS, RESIDUAL_PROGRAMS, max(num_residuals, 1)
    )
    launch(
        verify_kernel,
        (num_units * parts + num_residuals * residual_parts,),
        call,
        layout.num_reqs,
        parts,
        tiles_per_part,
        residual_parts,
        num_warps=NUM_WARPS,
    )


def launch_lossy(plan: Plan, call: Call, launch: Launcher) -> None:
    """Stages 3 to 5 of lossy policies."""
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


def split(num_blocks: int, tile: int, programs: int, num_rows: int) -> tuple[int, int]:
    """Parts of a row and tiles of a part, for about so many programs in all."""
    tiles = -(-num_blocks // tile)
    tiles_per_part = -(-tiles // max(1, min(tiles, -(-programs // num_rows))))
    return -(-tiles // tiles_per_part), tiles_per_part


def launch_logprobs(
    plan: Plan, arguments: Arguments, outputs: LogprobOutputs, launch: Launcher
) -> None:
    """Stage 6; raw logits are read once more."""
    assert arguments.raw is not None
    rows = plan.num_drafts + 1
    call = call_of(arguments)
    raw = call.variant._replace(num_rows=constexpr(rows), with_masses=constexpr(True))
    call = call._replace(
        draft=NO_DRAFT,
        adjust=NO_ADJUSTMENTS,
        target_recipe=NO_RECIPE,
        scratch=arguments.raw,
        variant=raw,
    )
    launch_statistics(plan, call, launch)
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
        TOP_N=arguments.num_logprobs,
        WIDTH=plan.width,
        num_warps=4,
    )


def launch_filters(plan: Plan, arguments: Arguments, launch: Launcher) -> None:
    """Stage 2, if some request filters."""
    layout = plan.layout
    launch(
        filter_kernel,
        (layout.num_reqs * layout.num_rows,),
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
        num_warps=4,
    )
