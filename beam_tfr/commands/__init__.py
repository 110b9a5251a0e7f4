"""The commands, one module each.

`add_flags` adds a command's flags to a parser, and `run` runs the command and returns its exit
code. `--help` shows the module's docstring, whose examples come last. `calls` contains code that
commands share. Commands import Beam and TensorFlow only when they run.
"""
