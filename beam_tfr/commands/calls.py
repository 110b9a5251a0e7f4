"""Parses the options of `convert` and `plan` on the command line and in files."""

import argparse
import contextlib
import gc
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from beam_tfr import storage
from beam_tfr.console.display import Display, on_stderr
from beam_tfr.console.terminal import printable
from beam_tfr.options import ConvertOptions, DisplayOptions, add_arguments, from_arguments, meant
from beam_tfr.options.table import options_of
from beam_tfr.schema.errors import TRACEBACK_VARIABLE, UsageError, spell_as_flags

OPTIONS = options_of(ConvertOptions)


def display(
    parsed: argparse.Namespace, what: str = "images"
) -> contextlib.AbstractContextManager[Display]:
    """The display of a command on standard error; `what` is what it counts."""
    options = from_arguments(parsed, DisplayOptions)
    return on_stderr(parsed.command, what=what, log_format=options.log_format, quiet=options.quiet)


@contextlib.contextmanager
def launching(
    parsed: argparse.Namespace, flags: Sequence[str], what: str = "images"
) -> Iterator[tuple[Display, dict[str, Any]]]:
    """The display of a command that runs Beam, after its flags are checked, and `progress` and
    `say` for `launch`."""
    with display(parsed, what) as shown:
        check_flags(parsed, flags)
        yield shown, {"progress": shown, "say": lambda text: shown.say(spell_as_flags(text))}


def add_dataset(parser: argparse.ArgumentParser, *options: str) -> None:
    """Adds the folder of a dataset, and some options of a conversion, with those of the display."""
    parser.add_argument("folder", metavar="DIR", help="folder of the dataset, on disk or gs://")
    add_arguments(parser, ConvertOptions, (*options, "log_format", "quiet", "json"), switches=True)


def add_where(parser: argparse._ActionsContainer, what: str) -> None:
    """Adds --where, whose conditions are those of `dataset.conditions`; `what` is what it
    chooses."""
    text = f"{what}; all must fit if it is repeated"
    parser.add_argument("--where", metavar="NAME=VALUE", action="append", help=text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a conversion, --config and --verbose."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file of options, including Beam's: image_size = 299, splits = {train = 0.9, test = 0.1}; the "
        "command line takes precedence",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show the engine's own log, and tracebacks of errors"
    )
    add_arguments(parser, ConvertOptions)


def read_call(
    parsed: argparse.Namespace, others: Sequence[str], *, output: str = ""
) -> tuple[ConvertOptions, list[str]]:
    """The options, and Beam's flags, of which `others` are on the command line; `output` is the
    default of its option.

    Beam's flags are still to be checked by `check_flags`.

    Raises:
        UsageError: a value is not allowed, or the file of --config cannot be read.
    """
    if parsed.verbose:
        os.environ[TRACEBACK_VARIABLE] = "1"
    flags = [*(_take_config(parsed) if parsed.config else ()), *others]
    parsed.has_output = bool(parsed.output)
    parsed.output = parsed.output or output
    try:
        return from_arguments(parsed, ConvertOptions), flags
    except UsageError:
        if flags:  # a misspelled one may be why an option is missing
            check_flags(parsed, flags)
        raise


def check_flags(parsed: argparse.Namespace, flags: Sequence[str]) -> None:
    """Checks Beam's flags. Imports Beam, which takes seconds.

    Raises:
        UsageError: one is unknown, or its value is not allowed.
    """
    gc.disable()  # which would take a tenth of a short run, for Beam's modules
    from beam_tfr import launch

    gc.freeze()
    gc.enable()
    launch.parse_beam_flags(flags, parsed.known)


def print_result(result: Mapping[str, Any] | Iterable[str]) -> None:
    """Prints the result of a command: JSON values for --json, or lines with options named as in
    Python."""
    if isinstance(result, Mapping):
        print(json.dumps(result, sort_keys=True))
    else:
        print(spell_as_flags(printable("\n".join(result))))


def refuse(parsed: argparse.Namespace, others: Sequence[str], program: str) -> NoReturn:
    """Raises the UsageError for arguments that a command does not know."""
    flag = next((other.partition("=")[0] for other in others if other.startswith("-")), "")
    if not flag and hasattr(parsed, "path"):
        raise UsageError(
            f"takes one PATH, not {len(others) + 1:,}; put a pattern into quotes, such as 'train-*'"
        )
    hint = meant(flag, parsed.known) or f"see {program} --help"
    raise UsageError(f"unknown: {flag or ' '.join(others[:3])}; {hint}")


def _take_config(parsed: argparse.Namespace) -> list[str]:
    """Fills in the options that the command line does not give; returns the file's other flags."""
    path = storage.check_path(parsed.config, option="config")
    try:
        values = tomllib.loads(storage.read_bytes(path).decode(), parse_float=str)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or f"it is not TOML: {error}"
        raise UsageError(f"cannot be read: {problem}", option="config", value=path) from error
    for name in [*filter(OPTIONS.__contains__, values)]:
        value = values.pop(name)
        if getattr(parsed, name) is None:
            setattr(parsed, name, value)
    own = next((name for name in values if f"--{name}" in parsed.known), "")
    if own:
        raise UsageError(
            f"`{own}=` can only be given on the command line", option="config", value=path
        )
    several = [
        (name, value if isinstance(value, list) else [value]) for name, value in values.items()
    ]
    return [
        f"--{name}" if item is True else f"--{name}={item}"
        for name, items in several
        for item in items
    ]
