"""The command `demo`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "demo",
        help="convert, verify, read and train on the bundled sample photos",
        description="Converts, verifies and reads the bundled sample photos of clothes, and trains a small model on "
        "them. Needs no network.",
    )
    parser.add_argument(
        "--output", metavar="DIR", default="beam_tfr_demo", help="folder of the dataset (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Runs the demo."""
    from beam_tfr.demo import demo

    demo(parsed.output)
    return 0
