"""The commands: one module each, with its flags (`add`) and what it does (`run`, which returns the
exit code).

A module's docstring is what `--help` shows about the command, with its examples at the end. `calls`
parses options, `summary` prints results. They import Beam and TensorFlow only when they run.
"""
