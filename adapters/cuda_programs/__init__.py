"""CUDA C++ of the packages beside this one, compiled by NVRTC where CuPy is installed."""
