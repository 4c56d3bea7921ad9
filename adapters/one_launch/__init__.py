"""A small model's whole forward in one launch: memory does not idle between its products.

Written in CUDA C++, and used only where CuPy is installed. Start with
`acceptor.adapters.one_launch.forward`.
"""
