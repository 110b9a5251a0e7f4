"""Contains code that commands share: flags, options from files, progress and results."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from beam_tfr import storage
from beam_tfr.console.display import Display, on_stderr
from beam_tfr.console.terminal import printable, shorten, without_secrets
from beam_tfr.options import (
    ConvertOptions,
    DisplayOptions,
    add_arguments,
    from_arguments,
    suggest_name,
)
from beam_tfr.options.table import options_of
from beam_tfr.schema.errors import TRACEBACK_VARIABLE, UsageError
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.schema.untrusted import describe_parse_error, quote

if TYPE_CHECKING:
    from PIL.Image import Image

OPTIONS = options_of(ConvertOptions)
_MAX_CONFIG_BYTES = 1 << 20  # 1 MiB
_MAX_KEY_DOTS = 100  # in a line, outside strings
_TOML_TEXT = re.compile(r""""(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|#[^\n]*+""")
DISPLAY_FLAGS = ("progress_format", "quiet", "json")


def show_progress(
    parsed: argparse.Namespace, noun: str = "images"
) -> contextlib.AbstractContextManager[Display]:
    """Builds a command's display, which writes to standard error and spells options as flags."""
    options = from_arguments(parsed, DisplayOptions)
    return on_stderr(
        parsed.command,
        noun=noun,
        progress_format=options.progress_format,
        quiet=options.quiet,
        spell=spell_as_flags,
    )


@contextlib.contextmanager
def show_run(
    parsed: argparse.Namespace, flags: Sequence[str], noun: str = "images"
) -> Iterator[Display]:
    """Builds the display of a command that runs Beam, once Beam's flags are checked."""
    with show_progress(parsed, noun) as display:
        check_flags(parsed, flags)
        yield display


def add_dataset(parser: argparse.ArgumentParser, *options: str) -> None:
    """Adds the argument for the folder of a dataset, the given options, and the display options."""
    parser.add_argument("folder", metavar="DIR", help="folder of the dataset, on disk or gs://")
    add_arguments(parser, ConvertOptions, (*options, *DISPLAY_FLAGS), switches=True)


def add_where(parser: argparse._ActionsContainer, purpose: str) -> None:
    """Adds --where; `dataset.conditions` describes its conditions."""
    text = f"{purpose}; if repeated, all conditions must be met"
    parser.add_argument("--where", metavar="NAME=VALUE", action="append", help=text)


def add_sources(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Adds --sources: the input that a dataset was made from."""
    parser.add_argument(
        "--sources",
        metavar="GLOB|TABLE",
        nargs="+",
        default=(),
        help="the --input or --table that the dataset was made from, and the folder passed as "
        f"--image_root, if any: {purpose}",
    )


def add_conversion(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a conversion, --config and --verbose."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file of options, including Beam's: image_size = 299, splits = {train = 0.9, "
        "test = 0.1}; the command line takes precedence",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show the engine's own log, and tracebacks of errors"
    )
    add_arguments(parser, ConvertOptions)


def read_conversion(
    parsed: argparse.Namespace, others: Sequence[str], *, output: str = ""
) -> tuple[ConvertOptions, list[str]]:
    """Returns the options of a conversion, and Beam's flags, which have yet to be checked.

    Args:
        parsed: flags of the command line.
        others: Beam's flags on the command line; the file of --config may contain more of them.
        output: default of the option `output`.

    Raises:
        UsageError: a value is not allowed, or the file of --config cannot be read.
    """
    if parsed.verbose:
        os.environ[TRACEBACK_VARIABLE] = "1"
    flags = list(others)
    if parsed.config:
        flags = [*_take_config(parsed), *others]
    parsed.has_output = bool(parsed.output)
    parsed.output = parsed.output or output
    try:
        return from_arguments(parsed, ConvertOptions), flags
    except UsageError:
        if flags:  # a misspelled flag may be why an option is missing
            check_flags(parsed, flags)
        raise


def _take_config(parsed: argparse.Namespace) -> list[str]:
    """Fills in options that only the file sets; returns the file's other flags."""
    path = storage.check_path(parsed.config, option="config")
    values = _read_toml(path)
    for name in OPTIONS.keys() & values.keys():
        value = values.pop(name)
        if getattr(parsed, name) is None:
            setattr(parsed, name, value)
    for name in values:
        if f"--{name}" in parsed.known:
            raise UsageError(
                f"`{name}=` can only be set on the command line", option="config", value=path
            )
    flags = []
    for name, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            flags.append(f"--{name}" if item is True else f"--{name}={_spell_value(item)}")
    return flags


def _spell_value(value: Any) -> str:
    """Spells a value from a file of options as on the command line."""
    try:
        return str(value)
    except ValueError:  # a hexadecimal number with thousands of digits
        return quote(value)


def _read_toml(path: str) -> dict[str, Any]:
    """Reads a file of options.

    Raises:
        UsageError: the file cannot be read, or is not TOML.
    """
    try:
        data = storage.read_bytes(path, max_bytes=_MAX_CONFIG_BYTES)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise UsageError(message, option="config", value=path) from error
    if len(data) > _MAX_CONFIG_BYTES:
        message = f"has more than {_MAX_CONFIG_BYTES >> 20} MiB"
        raise UsageError(message, option="config", value=path)
    try:
        text = data.decode()
        if not _has_long_key(text):
            return tomllib.loads(text, parse_float=str)
    except (ValueError, RecursionError) as error:
        message = f"is not valid TOML: {describe_parse_error(error)}"
        raise UsageError(message, option="config", value=path) from error
    message = f"has a name with more than {_MAX_KEY_DOTS} dots"
    raise UsageError(message, option="config", value=path)


def _has_long_key(text: str) -> bool:
    """Whether a line of TOML has many dots outside strings.

    The time that `tomllib` takes is quadratic in the number of such dots.
    """
    lines = _TOML_TEXT.sub("", text).split("\n")
    return any(line.count(".") > _MAX_KEY_DOTS for line in lines)


def check_flags(parsed: argparse.Namespace, flags: Sequence[str]) -> None:
    """Checks Beam's flags. Imports Beam, which takes seconds.

    Raises:
        UsageError: a flag is unknown, or its value is not allowed.
    """
    gc.disable()  # collections while importing Beam would take a tenth of a short run
    from beam_tfr import launch

    gc.freeze()
    gc.enable()
    launch.parse_beam_flags(flags, parsed.known)


class CommandResult(Protocol):
    """The result of a command, to be printed."""

    def as_json(self) -> dict[str, Any]:
        """Returns the fields of the result as JSON values."""

    def lines(self) -> Iterator[str]:
        """Yields the lines of the result, with options named as in Python."""


def print_result(result: CommandResult, *, as_json: bool) -> None:
    if as_json:
        print_json(result.as_json())
    else:
        print_lines(result.lines())


def print_json(values: Mapping[str, Any]) -> None:
    """Prints the result of a command for --json."""
    print(json.dumps(values, sort_keys=True))


def print_lines(lines: Iterable[str]) -> None:
    """Prints the result of a command, with options named as flags."""
    for line in lines:
        print(spell_as_flags(printable(without_secrets(line))))


def save_sheet(sheet: Image, path: str) -> None:
    """Writes a contact sheet to the file of --contact_sheet.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        sheet.save(storage.check_path(path, option="contact_sheet"))
    except (OSError, ValueError) as error:  # ValueError: an extension that Pillow does not know
        message = f"cannot be written: {getattr(error, 'strerror', None) or error}"
        raise UsageError(message, option="contact_sheet", value=path) from None


def refuse_arguments(
    parsed: argparse.Namespace, arguments: Sequence[str], program: str
) -> NoReturn:
    """Raises the UsageError for arguments that a command does not accept."""
    flags = [argument.partition("=")[0] for argument in arguments if argument.startswith("-")]
    if flags:
        hint = suggest_name(flags[0], parsed.known) or f"see {program} --help"
        raise UsageError(f"unknown: {shorten(flags[0])}; {hint}")
    if hasattr(parsed, "path"):
        raise UsageError(
            f"accepts one PATH, not {len(arguments) + 1:,}; put a pattern into quotes, such as "
            "'train-*'"
        )
    raise UsageError(f"unknown: {shorten(' '.join(arguments[:3]))}; see {program} --help")
