"""Starts the command line, as the console script `beam-tfr` or `python -m beam_tfr`."""

import os
from typing import NoReturn


def run() -> NoReturn:
    """Runs the command line; Ctrl-C and SIGTERM end it with a message, even during imports."""
    try:
        from beam_tfr.console import signals
    except KeyboardInterrupt:
        os.write(2, b"beam-tfr: interrupted: run the same command again\n")
        os._exit(130)
    signals.raise_interrupts()
    try:
        from beam_tfr import cli

        cli.run()
    except BaseException as error:
        # An import or an exit may turn the interrupt into any exception.
        if signals.arrived.is_set() or isinstance(error, KeyboardInterrupt):
            signals.exit_interrupted()
        raise


if __name__ == "__main__":
    run()
