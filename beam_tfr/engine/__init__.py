"""Runs pipelines and follows them to their end.

`runs` starts and follows a pipeline, `failures` translates errors of engines, `interrupt` handles
Ctrl-C, `cloud` passes on options for Google Cloud, `processes` starts the worker processes of a
local run, and `beam_internals` contains all uses of private parts of Beam.
"""
