"""Times a backend's `verify` against one read of the logits that its rule needs.

`acceptor bench kernels` and `python -m acceptor.app.bench.kernels` are the same command. Nothing
here imports the decode loop or its configuration, so that it runs where only PyTorch is installed.
"""
