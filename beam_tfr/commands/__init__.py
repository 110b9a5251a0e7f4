"""The commands: a module for each.

`add_flags` adds a command's flags to a parser, and `run` does what it says and returns the exit
code. A module's docstring is what `--help` shows about the command, with its examples at the end.
`calls` has what the commands share. They import Beam and TensorFlow only when they run.
"""
