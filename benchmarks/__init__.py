"""Benchmarks; `python -m benchmarks` lists them."""
