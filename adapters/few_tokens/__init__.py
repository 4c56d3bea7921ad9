"""A decode step's forward in few kernels: five per layer, each started before the last one ends.

They are written in Triton, and imported only where Triton is installed. Start reading at
`acceptor.adapters.few_tokens.forward`.
"""
