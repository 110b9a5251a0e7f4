"""The console script `beam-tfr`, and `python -m beam_tfr`."""

import os
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Runs the command line; Ctrl-C ends it quietly even during imports."""
    try:
        from beam_tfr import cli

        cli.run()
    except KeyboardInterrupt:  # before the command has begun
        print("beam-tfr: interrupted: run the same command again", file=sys.stderr, flush=True)
        os._exit(130)


if __name__ == "__main__":
    run()
