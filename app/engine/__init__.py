"""The engine: requests enter and leave a running batch.

`engine.Engine` is what callers see. A step is four calls of `loop.Loop`: admit and retire requests,
enter prompts, decode, notify. `schedule` gives out the slots. `parts` names what decodes: models,
drafter, sampler, policy. How a batch's step runs is a `runner.Runner`: the eager one starts each
operation in turn; `cuda_graphs.GraphRunner` replays a `captured_step` that `capture` has recorded,
with its sampling parameters at fixed addresses, and begins steps before the host has read the last
one. `memory_plan` says what memory is for, and `out_of_memory` what to lower where it ends. What a
step computes is in `acceptor.app.decode`.
"""
