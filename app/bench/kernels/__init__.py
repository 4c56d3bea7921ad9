"""`acceptor bench kernels`: times verification against one read of what its rule needs.

`command` and `main` are the command line, `workload` says what is measured (the headline's rows and
those of the worst table) and what a run leaves, `inputs` makes batches, `measure` runs them with
`stopwatch`, and `table` shows what it found.

    acceptor bench kernels --headline --worst --seconds 280 --json k.json --markdown k.md
    acceptor bench kernels --worst --backend cupy --inputs flat,ties --requests 64 --only top-p

`python -m acceptor.app.bench.kernels` is the same command. Nothing here imports the decode loop or
its configuration, so it runs where only PyTorch and the command line's packages are installed.
"""
