"""Every option of `convert`, once: flag, type, default, help, and whether it can change a record.

The command line, the options object and the Flex Template are made of the same table. An options object that exists
is valid: what is wrong is a `UsageError` with the flag, the value, what is allowed, and the cure.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from beam_tfr import storage
from beam_tfr.labels import parse_layout
from beam_tfr.schema import NO_SPLIT, UsageError

NAME = re.compile(r"[A-Za-z0-9_]+")
MAX_NAME = 100  # characters: a file name has at most 255 bytes
MAX_SIDE = 1 << 13  # pixels: what verify decodes
MIB = 1 << 20


def _refuse(flag: str, value: object, allowed: str) -> NoReturn:
    raise UsageError(f"--{flag} {value}: {allowed}")


# Parsers from the text of a flag; an options object made in Python passes the parsed value instead.


def _integer(flag: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        _refuse(flag, text, "must be a whole number of at most 20 digits")
    return int(text)


def _image_size(flag: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", text.lower())
    if not match:
        _refuse(flag, text, "must be HEIGHTxWIDTH in pixels, such as 224x224")
    return int(match[1]), int(match[2])


def _bytes(flag: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,20})\s*([KMG]i?B?)?", text, re.IGNORECASE)
    if not match:
        _refuse(flag, text, "must be a number of bytes, such as 104857600 or 100MiB")
    unit = (match[2] or "").upper()
    power = {"": 0, "K": 1, "M": 2, "G": 3}[unit[:1]]
    return int(int(match[1]) * (1000 if unit.endswith("B") and "I" not in unit else 1024) ** power)


def _boolean(flag: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        _refuse(flag, text, f"must be true or false; --{flag} alone means true")
    return text.lower() == "true"


def _share_or_number(flag: str, text: str) -> int | float:
    if re.fullmatch(r"[0-9]{1,20}", text):
        return int(text)
    if not re.fullmatch(r"[0-9]{0,20}\.[0-9]{1,20}|[0-9]{1,20}\.", text):
        _refuse(flag, text, "must be a share with a decimal point, 0.0 to 1.0, or a whole number of images")
    return float(text)


def _pairs(flag: str, text: str, example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not (name and separator and value):
            _refuse(flag, text, f"must be NAME=VALUE pairs with commas between, such as {example}")
        if name in pairs:
            _refuse(flag, text, f"names {name} twice")
        pairs[name] = value
    return pairs


def _splits(flag: str, text: str) -> dict[str, Fraction]:
    example = "train=0.8,validation=0.1,test=0.1"
    shares = {}
    for name, share in _pairs(flag, text, example).items():
        if not re.fullmatch(r"[0-9]{0,20}\.?[0-9]{1,20}|[0-9]{1,20}\.", share):
            _refuse(flag, text, f"the share of {name} must be a number from 0 to 1, such as {example}")
        shares[name] = Fraction(share)
    return shares


def _num_shards(flag: str, text: str) -> int | dict[str, int]:
    if "=" not in text:
        return _integer(flag, text)
    counts = _pairs(flag, text, "train=16,test=2")
    for name, count in counts.items():
        if not re.fullmatch(r"[0-9]{1,20}", count):
            _refuse(flag, text, f"the number of {name} must be a whole number")
    return {name: int(count) for name, count in counts.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """How one field of `ConvertOptions` looks from outside.

    Attributes:
        help: what it does, for --help and the template.
        metavar: of its value.
        parse: (flag, text) -> value; raises UsageError.
        choices: a closed set of values, or empty.
        group: heading in --help.
        many: takes several values.
        changes_data: can change a record, a shard or a reject, and so belongs to the options digest.
    """

    help: str
    metavar: str = ""
    parse: Callable[[str, str], Any] = lambda _, text: text
    choices: tuple[str, ...] = ()
    group: str
    many: bool = False
    changes_data: bool = True


def _option(default: Any = dataclasses.MISSING, **about: Any) -> Any:
    return dataclasses.field(default=default, metadata={"option": Option(**about)})


WHAT, LOOK, FILES, RUN = "what is read and written", "images", "files", "the run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """The options of one conversion, checked.

    Raises:
        UsageError: a value that is not allowed, or two options that exclude each other.
    """

    input: tuple[str, ...] = _option(
        help="patterns of image files, on disk or gs://, quoted: * any name, ** any number of folders, ? one "
        "character, [abc], {a,b}; a file matched twice counts once",
        metavar="GLOB",
        many=True,
        group=WHAT,
        changes_data=False,
    )
    output: str = _option(help="folder of the dataset, on disk or gs://", metavar="DIR", group=WHAT, changes_data=False)
    name: str = _option(
        "",
        help="prefix of the shard files: letters, digits, _ (default: last part of --output)",
        metavar="NAME",
        group=WHAT,
        changes_data=False,
    )
    layout: str = _option(
        "{label}/*",
        help="how the last parts of a path are read: {label}, {split}, {group}, *; '*' alone: no labels",
        metavar="PARTS",
        group=WHAT,
    )
    classes: str | None = _option(
        None,
        help="file with one class per line, in the order of their ids; images of other classes are rejected "
        "(default: all classes found, sorted)",
        metavar="FILE",
        group=WHAT,
        changes_data=False,  # its content is: see data_options
    )
    splits: dict[str, Fraction] | None = _option(
        None,
        help="shares by a stable hash of the path, or of {group} where --layout has one: "
        "train=0.8,validation=0.1,test=0.1 (default: all in train, or {split} of --layout)",
        metavar="SHARES",
        parse=_splits,
        group=WHAT,
    )
    image_size: tuple[int, int] = _option(
        (224, 224), help="height x width in pixels", metavar="HxW", parse=_image_size, group=LOOK
    )
    resize: str = _option(
        "stretch", help="how an image of another shape comes to this size", choices=("stretch",), group=LOOK
    )
    encoding: str = _option("jpeg", help="of the stored image", choices=("jpeg", "png"), group=LOOK)
    quality: int = _option(90, help="of JPEG, 1 to 100", metavar="N", parse=_integer, group=LOOK)
    compression: str = _option("gzip", help="of the files", choices=("gzip", "none"), group=FILES)
    gzip_level: int | str = _option(
        "auto",
        help="0 (stored) to 9; auto stores what is compressed already (JPEG, PNG) and compresses what is not",
        metavar="N",
        parse=lambda flag, text: text if text == "auto" else _integer(flag, text),
        group=FILES,
    )
    num_shards: int | dict[str, int] | None = _option(
        None,
        help="files per split: a number, or train=16,test=2 (default: from the size)",
        metavar="N",
        parse=_num_shards,
        group=FILES,
    )
    target_shard_bytes: int | None = _option(
        None,
        help="size of a file, such as 100MiB (the default); small datasets get more and smaller files, so that they "
        "are written and read in parallel",
        metavar="BYTES",
        parse=_bytes,
        group=FILES,
    )
    examples_per_shard: int | None = _option(
        None, help="at most so many records in a file", metavar="N", parse=_integer, group=FILES
    )
    seed: int = _option(0, help="of the order of the records", metavar="N", parse=_integer, group=FILES)
    max_rejects: int | float = _option(
        0.01,
        help="more unusable images fail the run: a share with a decimal point (0.01), or a number (25)",
        metavar="N",
        parse=_share_or_number,
        group=RUN,
        changes_data=False,
    )
    overwrite: bool = _option(
        False, help="replace another dataset in the output", parse=_boolean, group=RUN, changes_data=False
    )
    json: bool = _option(
        False,
        help="the summary as one JSON object on stdout, nothing else",
        parse=_boolean,
        group=RUN,
        changes_data=False,
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            option: Option = field.metadata["option"]
            value = getattr(self, field.name)
            if option.choices and value not in option.choices:
                _refuse(
                    field.name, value, f"must be one of: {', '.join(option.choices)}{_nearest(value, option.choices)}"
                )
            if option.parse is _boolean and not isinstance(value, bool):
                _refuse(field.name, value, "must be true or false")
        if isinstance(self.input, str):
            raise UsageError(f"--input {self.input}: must be a tuple of patterns, such as ({self.input!r},)")
        self._normalize("input", tuple(storage.check_path(pattern, "--input") for pattern in self.input))
        if not self.input or not all(self.input):
            raise UsageError("--input: give at least one pattern, such as --input 'photos/**/*.jpg'")
        if not self.output:
            raise UsageError("--output: give the folder of the dataset, such as --output /data/flowers")
        self._normalize("output", storage.check_path(self.output, "--output"))
        if not self.name:
            last = self.output.rstrip("/").rsplit("/", 1)[-1]
            self._normalize("name", re.sub(r"[^A-Za-z0-9_]", "_", last)[:MAX_NAME] or "dataset")
        if not NAME.fullmatch(self.name) or len(self.name) > MAX_NAME:
            _refuse("name", self.name, f"may hold letters, digits and _ only, at most {MAX_NAME}")
        self._normalize("layout", "/".join(parse_layout(self.layout).parts))
        if self.classes and "{label}" not in self.layout:
            _refuse("classes", self.classes, f"has no effect with --layout {self.layout}, which names no {{label}}")
        if self.splits is not None:
            self._normalize("splits", {name: _share(name, share) for name, share in self.splits.items()})
            self._check_splits(self.splits)
        if len(self.image_size) != 2 or not all(_is_int(side) and 1 <= side <= MAX_SIDE for side in self.image_size):
            shown = "x".join(map(str, self.image_size))
            _refuse("image_size", shown, f"must be height x width, each from 1 to {MAX_SIDE} pixels, such as 224x224")
        _check_range("quality", self.quality, 1, 100)
        if self.gzip_level != "auto":
            if not _is_int(self.gzip_level) or not 0 <= self.gzip_level <= 9:  # type: ignore[operator]
                _refuse("gzip_level", self.gzip_level, "must be auto or 0 to 9")
            if self.compression == "none":
                _refuse("gzip_level", self.gzip_level, "has no effect with --compression none; use one of them")
        self._check_shards()
        _check_range("seed", self.seed, -(1 << 63), (1 << 63) - 1)
        if not isinstance(self.max_rejects, (int, float)) or isinstance(self.max_rejects, bool):
            _refuse("max_rejects", self.max_rejects, "must be a share, 0.0 to 1.0, or a whole number of images")
        if isinstance(self.max_rejects, float) and not 0.0 <= self.max_rejects <= 1.0:
            _refuse(
                "max_rejects",
                self.max_rejects,
                "a share must be from 0.0 to 1.0; without a decimal point it is a number",
            )
        if self.max_rejects < 0:
            _refuse("max_rejects", self.max_rejects, "must not be negative")

    def _normalize(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_splits(self, splits: Mapping[str, Fraction]) -> None:
        text = ",".join(f"{name}={float(share):g}" for name, share in splits.items())
        if "{split}" in self.layout:
            _refuse("splits", text, f"not together with {{split}} in --layout {self.layout}; use one of them")
        for name, share in splits.items():
            check_split_name(name, f"--splits {text}")
            if share <= 0:
                _refuse("splits", text, f"the share of {name} must be above 0; leave the split out instead")
        if abs(sum(splits.values(), Fraction(-1))) > Fraction(1, 10**6):
            _refuse("splits", text, f"the shares must add up to 1, they add up to {float(sum(splits.values())):g}")

    def _check_shards(self) -> None:
        given = [
            name
            for name in ("num_shards", "target_shard_bytes", "examples_per_shard")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise UsageError(f"--{given[0]} and --{given[1]} exclude each other: give only one of them")
        if self.num_shards is not None:
            counts = self.num_shards if isinstance(self.num_shards, dict) else {"": self.num_shards}
            for split, count in counts.items():
                _check_range("num_shards", count, 1, 99_999, of=f" of {split}" if split else "")
        if self.target_shard_bytes is not None:
            _check_range("target_shard_bytes", self.target_shard_bytes, 1 << 10, 1 << 40)
        if self.examples_per_shard is not None:
            _check_range("examples_per_shard", self.examples_per_shard, 1, 1 << 40)

    def data_options(self, classes: Sequence[str] | None) -> dict[str, Any]:
        """The options that can change a record, a shard or a reject, as JSON values, for digests and the manifest.

        Args:
            classes: the content of the file that --classes names.
        """
        values: dict[str, Any] = {"classes": None if classes is None else list(classes)}
        for field in dataclasses.fields(self):
            if field.metadata["option"].changes_data:
                values[field.name] = getattr(self, field.name)
        values["image_size"] = list(self.image_size)
        values["splits"] = None if self.splits is None else {name: str(share) for name, share in self.splits.items()}
        return values

    @property
    def suffix(self) -> str:
        return ".tfrecord.gz" if self.compression == "gzip" else ".tfrecord"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _share(name: str, share: object) -> Fraction:
    try:
        return Fraction(str(share))
    except (ValueError, ZeroDivisionError):
        _refuse("splits", f"{name}={share}", "must be a number from 0 to 1")


def _check_range(flag: str, value: int, low: int, high: int, of: str = "") -> None:
    if not _is_int(value) or not low <= value <= high:
        _refuse(flag, value, f"the value{of} must be a whole number from {low} to {high}")


def check_split_name(name: str, where: str) -> None:
    """
    Raises:
        UsageError: a split of this name could not stand in a file name, or is reserved.
    """
    if not NAME.fullmatch(name) or name == NO_SPLIT:
        raise UsageError(
            f"{where}: {name!r} is no name of a split; allowed are letters, digits and _, but not {NO_SPLIT}"
        )


def _nearest(value: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(value), known, n=1)
    return f". Did you mean {near[0]}?" if near else ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each option, in groups; values stay text until `from_arguments`."""
    groups: dict[str, Any] = {}
    for field in dataclasses.fields(ConvertOptions):
        option: Option = field.metadata["option"]
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        required = field.default is dataclasses.MISSING
        about = option.help
        if required:
            about += " (required)"
        elif field.default not in (None, "", False):
            shown = "x".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
            about += f" (default: {shown})"
        extra: dict[str, Any] = {"metavar": "{" + ",".join(option.choices) + "}" if option.choices else option.metavar}
        if option.many:
            extra |= {"nargs": "+", "action": "extend"}
        elif option.parse is _boolean:
            extra |= {"nargs": "?", "const": "true", "metavar": "true|false"}
        groups[option.group].add_argument(f"--{field.name}", default=None, help=about.replace("%", "%%"), **extra)


def from_arguments(arguments: argparse.Namespace) -> ConvertOptions:
    """The options object of parsed flags; an empty value means not given (a form's empty field).

    Raises:
        UsageError: a required flag is missing, or a value is not allowed.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(ConvertOptions):
        option: Option = field.metadata["option"]
        given = getattr(arguments, field.name)
        if option.many:
            given = tuple(value for value in given or () if value)
        if given:
            values[field.name] = given if option.many else option.parse(field.name, given)
        elif field.default is dataclasses.MISSING:
            raise UsageError(f"--{field.name} is required: {option.help}")
    return ConvertOptions(**values)


def default_threads() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
