"""A decode step's forward in few kernels: five a layer, started early one after the other.

Written in Triton, and imported only where Triton is installed. Start with
`acceptor.adapters.few_tokens.forward`.
"""
