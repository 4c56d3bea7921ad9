"""The samplers as PyTorch operators, for `torch.compile(fullgraph=True)` around a decode step.

`torch.ops.acceptor.verify` and `torch.ops.acceptor.sample` run any registered backend, and tell the
compiler the shapes of their results without running one.
"""

from .front import SampleOperator, SampleTensors, VerifyOperator, VerifyTensors

__all__ = ["SampleOperator", "SampleTensors", "VerifyOperator", "VerifyTensors"]
