"""`python -m acceptor.app.bench.kernels`; refuses to be anything but the command."""

from .command import kernels

if __name__ == "__main__":
    kernels()
