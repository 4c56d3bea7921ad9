"""Rejection sampling in vLLM by acceptor: a plug-in of its group `vllm.general_plugins`.

vLLM calls `register` in each of its processes. Where an engine's `additional_config` names
acceptor, its rejection sampler is acceptor's (`rejection_sampler`), and parameters that vLLM
refuses beside drafts pass (`registration`). Importing this package does not import vLLM.
"""

from .registration import register

__all__ = ["register"]
