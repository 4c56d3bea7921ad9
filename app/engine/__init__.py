"""The engine: requests enter and leave a running batch.

Callers use `engine.Engine`. A step is four calls of `loop.Loop`: admit and retire requests, enter
prompts, decode, notify. `parts` names the parts that decode (models, drafter, sampler, policy) and
their limits, and says what memory they use; `out_of_memory` says what to lower if it is too little.
A `runner.Runner` runs a batch's step: the eager one starts each operation in turn;
`cuda_graphs.GraphRunner` replays a step that `capture` has recorded, with its sampling parameters
at fixed addresses, and begins the next one before the host has read it. The computation of a step
is in `acceptor.app.decode`.
"""
