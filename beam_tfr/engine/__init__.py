"""Runs pipelines: `runs` on this machine or another engine, until `failures` or Ctrl-C."""
