"""The command `completion`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")
PATHS = ("PATH", "DIR", "FILE", "FILE.png", "GLOB", "DIR|GLOB", "LOGDIR")  # values that are completed as files
EXAMPLES = """examples:
  beam-tfr completion bash > ~/.local/share/bash-completion/completions/beam-tfr
  beam-tfr completion zsh > ~/.zfunc/_beam-tfr
      with ~/.zfunc in fpath
  beam-tfr completion fish > ~/.config/fish/completions/beam-tfr.fish
"""


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Prints a script with which a shell completes commands and options, without starting Python.",
        epilog=EXAMPLES,
    )
    parser.add_argument("shell", choices=SHELLS, help=", ".join(SHELLS))
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Prints the script."""
    import shtab

    for command in parsed.commands.values():
        for action in command._actions:
            action.help = getattr(action, "full_help", action.help)
            if action.metavar in PATHS:
                action.complete = shtab.FILE
            elif str(action.metavar).startswith("{"):
                action.choices = action.metavar.strip("{}").split(",")
    print(shtab.complete(parsed.parser, parsed.shell))
    return 0
