"""Benchmarks; `python -m benchmarks` lists them.

What they start may keep its compiled modules, as Python usually does: compiling them anew takes 3 s
of each run.
"""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
