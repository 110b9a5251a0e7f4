"""Starts the program, as `python examples/export` from anywhere, or as `python -m examples.export`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    if not __package__:  # the folder was started by its path, so it is where modules are looked for
        sys.path[0] = str(Path(__file__).resolve().parents[2])
    from examples.export.command import start

    start()
