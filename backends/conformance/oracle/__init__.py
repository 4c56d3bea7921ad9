"""The contract in float64 NumPy, written from its text and not from any backend."""
