"""Watches the conversions of each process that a benchmark starts: see benchmarks/timed_run.py."""

from benchmarks.timed_run import watch

watch()
