"""Runs pipelines and follows them: `runs`.

`failures` translates errors of engines, `interrupt` is Ctrl-C, `cloud` passes on options for Google
Cloud, `processes` starts the worker processes of a local run, and `beam_internals` has Beam's
private parts.
"""
