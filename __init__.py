"""acceptor decides which draft tokens survive in speculative decoding, exactly and fast.

The values, policies and ports are in `acceptor.core`; `acceptor.backends.load_sampler` makes the
samplers. This module imports neither, so importing it costs nothing.
"""

__version__ = "0.1.0"
