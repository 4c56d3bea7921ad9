"""Benchmarks: what `acceptor bench` runs."""
