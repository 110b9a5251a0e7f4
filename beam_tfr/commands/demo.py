"""The command `demo`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "demo",
        help="convert, verify, read and train on a bundled sample of photos",
        description="Converts, verifies and reads a bundled sample of photos of clothes, and trains a small model on "
        "it. Needs no network.",
    )
    parser.add_argument("--output", metavar="DIR", default="beam_tfr_demo", help="(default: %(default)s)")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Shows the whole way."""
    from beam_tfr.demo import demo

    demo(parsed.output)
    return 0
