"""python -m benchmarks NAME [PHOTOS] [options]

Prints a line about the machine and tables in Markdown. README.md says what each benchmark compares.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from benchmarks import measuring

NAMES = (
    "convert",
    "others",
    "keep",
    "masks",
    "png",
    "verify",
    "cloud",
    "archives",
    "phases",
    "gil",
    "counters",
    "read",
    "random_access",
    "updates",
    "resize",
    "memory",
    "tables",
    "scale",
    "listing",
    "publish",
    "shards",
    "estimate",
    "duplicates",
    "report",
    "digests",
)


def main() -> None:
    # Only the one that runs is imported: the peak memory of a process is never less than that of
    # the one that starts it.
    names = [name for name in sys.argv[1:2] if name in NAMES]
    arguments = make_parser(names or NAMES).parse_args()
    print(measuring.machine(), flush=True)
    for table in arguments.run(arguments):
        print(f"\n{table}", flush=True)


def make_parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of some benchmarks, which are imported."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Benchmarks of beam_tfr.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        command = commands.add_parser(
            name,
            help=(module.__doc__ or "").partition("\n")[0],
            description=module.__doc__,
            allow_abbrev=False,
        )
        command.add_argument(
            "--quick", action="store_true", help="only show that it runs: little work, one turn"
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    main()
