"""All tests.

Many start processes of their own, so bytecode is cached even where the environment forbids it.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
