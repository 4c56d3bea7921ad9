"""The engine: requests enter and leave a running batch.

Callers use `engine.Engine`. A step is four calls of `loop.Loop`: admit and retire requests, enter
prompts, decode, notify. `parts` names the parts that decode (models, drafter, sampler, policy) and
their limits. A `runner.Runner` runs a batch's step: the eager one starts each operation in turn;
`cuda_graphs.GraphRunner` replays a `captured_step` that `capture` has recorded, with its sampling
parameters at fixed addresses, and begins steps before the host has read the last one.
`memory_plan` says what memory is used for, and `out_of_memory` what to lower if it is too little.
The computation of a step is in `acceptor.app.decode`.
"""
