"""python -m benchmarks NAME [PHOTOS] [options]

Prints a line about the machine and tables in Markdown. README.md says what each benchmark compares.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks import measuring

NAMES = (
    "convert",
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
    "resize",
    "memory",
    "tables",
    "scale",
    "listing",
    "publish",
    "shards",
    "estimate",
    "digests",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Benchmarks of beam_tfr.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    # Only the one that runs: the peak memory of a process is never less than that of the one that
    # starts it.
    names = sys.argv[1:2] if set(sys.argv[1:2]) & set(NAMES) else NAMES
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    for name, module in modules.items():
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
    arguments = parser.parse_args()
    print(measuring.machine(), flush=True)
    for table in modules[arguments.name].run(arguments):
        print(f"\n{table}", flush=True)


if __name__ == "__main__":
    main()
