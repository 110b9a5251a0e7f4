"""What the Flex Template's launcher runs: `beam-tfr convert` with the template's parameters."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from beam_tfr.cli import run
from beam_tfr.options import ConvertOptions
from beam_tfr.options.table import options_of


def launcher_arguments(arguments: Sequence[str]) -> list[str]:
    """The launcher's flags as arguments of `beam-tfr convert`; lists are split."""
    many = {name for name, option in options_of(ConvertOptions).items() if option.kind.many}
    found: list[str] = []
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        if name in many:
            found += [f"--{name}={part}" for part in split_patterns(value)]
        else:
            found.append(argument)
    return found


def split_patterns(text: str) -> list[str]:
    """Splits patterns at commas, but not in braces or brackets."""
    parts = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+", text)
    return [part.strip() for part in parts if part.strip()]


if __name__ == "__main__":
    sys.argv[1:] = ["convert", *launcher_arguments(sys.argv[1:])]
    run()
