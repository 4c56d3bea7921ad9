"""`python -m acceptor.app.bench.kernels`."""

from ..command import kernels

if __name__ == "__main__":
    kernels()
