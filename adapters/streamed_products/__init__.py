"""Products of 9 to 64 tokens with a matrix, whose weights stream ahead of the tokens.

Written in CUDA C++, and used only where CuPy is installed. Start with
`acceptor.adapters.streamed_products.product`.
"""
