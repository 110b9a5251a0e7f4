"""The options of `convert`: input and output, and those of tables, images and runs."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_tfr import storage
from beam_tfr.labels import SPLIT_RULE
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, is_split_name, parse_layout
from beam_tfr.naming import NAME, SUFFIXES
from beam_tfr.options import parsers
from beam_tfr.options.image import OF_ALL_FILES, ImageOptions
from beam_tfr.options.run import RunOptions
from beam_tfr.options.table import FILES, LIMITS, LOOK, WHAT, check_range, is_int, option
from beam_tfr.options.tabular import TableOptions
from beam_tfr.schema import MOST_SHARDS, UsageError, in_order
from beam_tfr.schema.features import OTHER_ENCODINGS

MAX_LIMIT = 1_000_000  # of --limit; one worker holds a short key for each
MAX_NAME = 100  # characters: a file name has at most 255 bytes
# Option of 0.1 that was removed -> the value that all conversions have since. `options` of plans and manifests keep it,
# so that a conversion has the digests that it always had, and finds its older datasets and plans.
REMOVED: dict[str, Any] = {}
REMOVED_OF_IMAGES: dict[str, Any] = {}  # those that applied to images only

_place = functools.partial(option, group=WHAT, changes_data=False)
_shards = functools.partial(option, group=FILES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions(TableOptions, ImageOptions, RunOptions):
    """The checked options of one conversion.

    Raises:
        UsageError: a value is not allowed, or two options exclude each other.
    """

    input: tuple[str, ...] = _place(
        (),
        help="folders, for all images in them, or quoted patterns of image files, local or gs://: * any name, ** any "
        "number of folders, ? one character, [abc], {a,b}; a file that matches twice counts once",
        metavar="DIR|GLOB",
        many=True,
        example="photos",
    )
    input_list: str | None = _place(
        None, help="file with more paths and patterns, one per line, local or gs://", metavar="FILE"
    )
    exclude: tuple[str, ...] = _place(
        (),
        help="patterns of files to skip, matched against the full path, or the path below the folder that all inputs "
        "share: 'thumbs/**', '**/*.gif'",
        metavar="GLOB",
        many=True,
        example="'**/*_mask.png'",
    )
    output: str = _place(
        help="folder of the dataset, local or gs://",
        metavar="DIR",
        example="/data/photos",
    )
    name: str = _place(
        "", help="prefix of the shard files: letters, digits, _ (default: last part of --output)", metavar="NAME"
    )
    layout: str = option(
        "",  # not the default, since a folder that looks like a split needs an explicit one
        help="how to read the end of each path: {label}, {split}, {group}, {number} (digits) and *, which can be parts "
        "of a name: {label}_*; '*' alone means no labels (default: {label}/*)",
        metavar="PARTS",
        group=WHAT,
        example="'{split}/{label}/*'",
    )
    classes: str | None = _place(
        None,
        help="file with one class per line, in the order of the label ids; images of other classes are rejected. Or a "
        "dataset, its folder or manifest.json: its classes keep their ids, and new ones follow, sorted (default: all "
        "classes found, sorted)",
        metavar="FILE",
        example="classes.txt",
    )  # its content changes data: see data_options
    splits: dict[str, Fraction] | None = option(
        None,
        help="share of each split, such as train=0.8,validation=0.1,test=0.1; not exact, since a stable hash of the "
        "path, or of {group} if --layout has one, assigns the images (default: {split} of --layout, or all in train)",
        metavar="SHARES",
        parse=parsers.shares,
        group=WHAT,
        example="train=0.8,validation=0.1,test=0.1",
    )
    limit: int | None = option(
        None,
        help="convert only this many images (at most 1,000,000), for a trial run: the first in the order of --seed, "
        "which mixes the classes",
        metavar="N",
        parse=parsers.integer,
        group=WHAT,
        implied=True,
        example="100",
    )
    compression: str = _shards("gzip", help="compression of the shard files", choices=("gzip", "none"))
    gzip_level: int | str = _shards(
        "auto",
        help="0 (stored) to 9; auto stores what is already compressed (JPEG, PNG, WebP) and compresses raw pixels",
        metavar="N",
        parse=lambda text: text if text == "auto" else parsers.integer(text),
    )
    num_shards: int | dict[str, int] | None = _shards(
        None,
        help="shards per split: one number for all, or train=16,test=2 (default: depends on the size)",
        metavar="N",
        parse=parsers.num_shards,
    )
    target_shard_bytes: int | None = _shards(
        None,
        help="size of a shard, such as 100MiB (the default); small datasets get more, smaller shards, so that they can "
        "be written and read in parallel",
        metavar="BYTES",
        parse=parsers.number_of_bytes,
    )
    examples_per_shard: int | None = _shards(
        None, help="maximum number of records in a shard", metavar="N", parse=parsers.integer
    )
    seed: int = _shards(0, help="seed for the order of the records", metavar="N", parse=parsers.integer)

    def __post_init__(self) -> None:
        self.check_texts()
        self.normalize("encoding", self._check_tables(self.encoding))
        super().__post_init__()
        if self.resize == "none" and self.image_size != ImageOptions.image_size:  # but a manifest may hold both
            self._no_effect("image_size", "resize", "it keeps all pixels")
        self._check_places()
        self._check_labels()
        self._check_shards()
        check_range("seed", self.seed, 0, (1 << 63) - 1)
        if self.limit is not None:
            check_range("limit", self.limit, 1, MAX_LIMIT)
        self._check_run()

    def _check_places(self) -> None:
        self.normalize("input", tuple(storage.check_path(pattern, option="input") for pattern in self.input))
        given = [name for name in ("input", "input_list", "exclude") if getattr(self, name)]
        if self.table and given:
            raise UsageError(f"`{given[0]}=` and `table=` cannot be combined: the table names what is read")
        if not (self.input or self.input_list or self.table) or not all(self.input):
            raise UsageError("give at least one pattern, such as 'photos/**/*.jpg', or a `table=`", option="input")
        if not self.output:
            raise UsageError("give the folder of the dataset, such as /data/flowers", option="output")
        for name in ("input_list", "output"):
            if path := getattr(self, name):
                self.normalize(name, storage.check_path(path, option=name))
        if not self.name:
            last = self.output.rstrip("/").rsplit("/", 1)[-1]
            self.normalize("name", re.sub(r"[^A-Za-z0-9_]", "_", last)[:MAX_NAME] or "dataset")
        if not NAME.fullmatch(self.name) or len(self.name) > MAX_NAME:
            self.refuse("name", f"must be letters, digits and _, at most {MAX_NAME}")

    def _check_labels(self) -> None:
        if self.table:
            if self.layout:
                self.refuse("layout", "has no effect with `table=`, whose columns give labels and splits")
            if self.classes and not self.label_column:
                self.refuse("classes", "has no effect without `label_column=`")
        elif self.layout:
            self.normalize("layout", "/".join(parse_layout(self.layout).parts))
            if self.classes and "{label}" not in self.layout:
                self.refuse("classes", f"has no effect with `layout={self.layout}`, which has no {{label}}")
        if self.splits is not None:
            self._check_splits(self.splits)
        elif self.group_column:
            self.refuse("group_column", "has no effect without `splits=`")

    def _check_splits(self, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            self.refuse("splits", 'must map names of splits to shares, such as {"train": 0.9, "test": 0.1}')
        try:
            splits = {name: Fraction(str(share)) for name, share in given.items()}
        except (ValueError, ZeroDivisionError):
            self.refuse("splits", "each share must be a number from 0 to 1")
        text = ",".join(f"{name}={float(share):g}" for name, share in splits.items())
        for name, share in splits.items():
            if not isinstance(name, str) or not is_split_name(name):
                allowed = f"{name!r} cannot be a split: {SPLIT_RULE}"
                raise UsageError(allowed, option="splits", value=text)
            if share <= 0:
                cure = f"the share of {name} must be above 0; leave the split out instead"
                raise UsageError(cure, option="splits", value=text)
        if abs((total := sum(splits.values(), Fraction())) - 1) > Fraction(1, 10**6):
            raise UsageError(f"the shares must add up to 1, not {float(total):g}", option="splits", value=text)
        other = f"{{split}} in `layout={self.layout}`" if "{split}" in self.layout else ""
        if other := other or (f"`split_column={self.split_column}`" if self.split_column else ""):
            raise UsageError(f"cannot be combined with {other}; use one of them", option="splits", value=text)
        self.normalize("splits", {name: splits[name] for name in in_order(splits)})  # a manifest keeps no order

    def _check_shards(self) -> None:
        if self.gzip_level != "auto":
            if not is_int(self.gzip_level) or not 0 <= self.gzip_level <= 9:  # type: ignore[operator]
                self.refuse("gzip_level", "must be auto or 0 to 9")
            if self.compression == "none":
                self.refuse("gzip_level", "has no effect with `compression=none`; use one of them")
        sizes = ("num_shards", "target_shard_bytes", "examples_per_shard")
        given = [name for name in sizes if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"`{given[0]}=` and `{given[1]}=` cannot be combined; give only one of them")
        if self.num_shards is not None:
            counts = self.num_shards if isinstance(self.num_shards, dict) else {"": self.num_shards}
            for split, count in counts.items():
                of, other = (f" of {split}", "") if split else ("", ', or a dict such as {"train": 16, "test": 2}')
                check_range("num_shards", count, 1, MOST_SHARDS, of=of, other=other)
        if self.target_shard_bytes is not None:
            check_range("target_shard_bytes", self.target_shard_bytes, 1 << 10, 1 << 40)
        if self.examples_per_shard is not None:
            check_range("examples_per_shard", self.examples_per_shard, 1, 1 << 40)

    def data_options(
        self,
        classes: Sequence[str] | None,
        *,
        columns: Mapping[str, str] | None = None,
        multi_label: bool = False,
    ) -> dict[str, Any]:
        """The options that can change a record, a shard or a reject, as JSON values, for digests and the manifest.

        Args:
            classes: content of the file named by `classes`.
            columns: table column -> type, of the columns that become features.
            multi_label: whether a row of the table has any number of labels.
        """
        images = self.encoding not in OTHER_ENCODINGS
        values: dict[str, Any] = {"classes": None if classes is None else list(classes)}
        values |= REMOVED | (REMOVED_OF_IMAGES if images else {})
        for field in dataclasses.fields(self):
            about, value = field.metadata["option"], getattr(self, field.name)
            applies = images or field.name in OF_ALL_FILES or about.group not in (LOOK, LIMITS)
            if about.changes_data and applies and not (about.implied and value == field.default):
                values[field.name] = value
        values["layout"] = self.layout or DEFAULT_LAYOUT
        for name in values.keys() & {"image_size", "background"}:
            values[name] = list(values[name])
        values["splits"] = None if self.splits is None else {name: str(share) for name, share in self.splits.items()}
        if self.table:
            del values["layout"]
            values |= self._given() | {"feature_columns": dict(columns or {}), "multi_label": multi_label}
            values.pop("image_root", None)  # a place, which changes nothing
        return values

    @property
    def suffix(self) -> str:
        """File name extension of the shards."""
        return SUFFIXES[self.compression]


def default_threads() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
