"""Attention of a decode step with small heads, which asks for the cache before others have ended.

Written in CUDA C++, and used only where CuPy is installed. Start with
`acceptor.adapters.early_attention.attend`.
"""
