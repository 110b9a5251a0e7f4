"""The commands: one module each, with its flags (`add`) and what it does (`run`, which returns the exit code).

`calls` parses options, `summary` prints results. They import Beam and TensorFlow only when they run.
"""
