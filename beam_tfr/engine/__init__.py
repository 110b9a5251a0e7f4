"""Runs pipelines and follows them to their end.

`runs` starts and monitors a pipeline, `failures` translates engine errors, `interrupt` handles
Ctrl-C, `cloud` passes on options for Google Cloud, `processes` starts the worker processes of a
local run, and `beam_internals` contains all uses of Beam's private APIs.
"""
