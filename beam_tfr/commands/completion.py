"""The command `completion`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

EXAMPLES = """examples:
  beam-tfr completion bash > ~/.local/share/bash-completion/completions/beam-tfr
  beam-tfr completion zsh > ~/.zfunc/_beam-tfr
      with ~/.zfunc in fpath
"""


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Prints a script with which a shell completes commands and options, without starting Python.",
        epilog=EXAMPLES,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Prints the script."""
    import shtab

    print(shtab.complete(parsed.parser, parsed.shell))
    return 0
