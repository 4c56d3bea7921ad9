"""`acceptor bench kernels`: times verification against one read of the logits that its rule needs.

`main` turns the command's options into a run. `workload` defines what is measured (the rows of the
headline and of the worst table) and the record of a run, `inputs` makes batches, `measure` runs and
times them, and `table` shows the results.

    acceptor bench kernels --headline --worst --seconds 280 --json k.json --markdown k.md
    acceptor bench kernels --worst --backend cupy --inputs flat,ties --requests 64 --only top-p

`python -m acceptor.app.bench.kernels` is the same command. Nothing here imports the decode loop or
its configuration, so it runs where only PyTorch and the command line's packages are installed.
"""
