"""Rejection sampling in vLLM by acceptor: a plug-in of the group `vllm.general_plugins`.

vLLM calls `register` in each of its processes. If an engine's `additional_config` names acceptor,
the engine uses acceptor's rejection sampler (`rejection_sampler`), and accepts parameters that vLLM
refuses with drafts (`registration`). Importing this package does not import vLLM.
"""

from .registration import register

__all__ = ["register"]
