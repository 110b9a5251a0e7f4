"""The command `template`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "template",
        help="write the spec file of the Dataflow Flex Template",
        description="Writes the spec file of the Dataflow Flex Template, whose parameters are the options of convert. "
        "templates/README.md in the sources explains how to build its image and launch it.",
    )
    parser.add_argument(
        "--image", metavar="IMAGE", required=True, help="container image of launcher and workers, in a registry"
    )
    parser.add_argument("--output", metavar="FILE", help="file to write, local or gs:// (default: standard output)")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Prints the template's spec, or writes it."""
    from beam_tfr.dataflow.template import write_spec

    text = write_spec(parsed.image, parsed.output)
    print(text if parsed.output is None else f"wrote {parsed.output}", end="" if parsed.output is None else "\n")
    return 0
