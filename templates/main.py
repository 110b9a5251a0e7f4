"""What the Flex Template's launcher runs: `beam-tfr convert`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from beam_tfr.cli import run
from beam_tfr.options import ConvertOptions
from beam_tfr.options.table import options_of


def launcher_arguments(arguments: Sequence[str]) -> list[str]:
    """The launcher's flags as arguments of `beam-tfr convert`; lists are split."""
    options = options_of(ConvertOptions)
    flags: list[str] = []
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        if name in options and options[name].kind.many:
            flags += [f"--{name}={part}" for part in split_patterns(value)]
        else:
            flags.append(argument)
    return flags


def split_patterns(text: str) -> list[str]:
    """Splits patterns at commas, but not in braces or brackets."""
    parts = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+", text)
    return [part.strip() for part in parts if part.strip()]


if __name__ == "__main__":
    sys.argv[1:] = ["convert", *launcher_arguments(sys.argv[1:])]
    run()
