"""Runs pipelines and follows them: `runs`.

`failures` translates errors of engines, `interrupt` is Ctrl-C, `cloud` passes on options for Google
Cloud, `worker` is a worker process of a local run, `processes` starts them, and `beam_internals`
has Beam's private parts.
"""
