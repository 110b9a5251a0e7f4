"""The options of `convert`: those of tables and images, and what is read, written and run."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_tfr import storage
from beam_tfr.display import FORMATS
from beam_tfr.labels import SPLIT_RULE, is_split_name, parse_layout
from beam_tfr.naming import NAME, SUFFIXES
from beam_tfr.options import table
from beam_tfr.options.image import OF_ALL_FILES, ImageOptions
from beam_tfr.options.table import FILES, RUN, WHAT, check_range, check_texts, is_int, is_number, option
from beam_tfr.options.tabular import TableOptions
from beam_tfr.schema import UsageError, in_order
from beam_tfr.schema.features import OTHER_ENCODINGS

MAX_READ_AHEAD = 1024  # each image read ahead has its own thread
MAX_DEADLINE_S = 86_400
MAX_LIMIT = 1_000_000  # of --limit; one worker holds a short key for each
MAX_NAME = 100  # characters: a file name has at most 255 bytes

_place = functools.partial(option, group=WHAT, changes_data=False)
_shards = functools.partial(option, group=FILES)
_run = functools.partial(option, group=RUN, changes_data=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions(TableOptions, ImageOptions):
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
        "",  # tables take no layout, not even the default
        help="how to read the end of each path: {label}, {split}, {group}, {number} (digits) and *, which can be parts "
        "of a name: {label}_*; '*' alone means no labels (default: {label}/*)",
        metavar="PARTS",
        group=WHAT,
        example="'{split}/{label}/*'",
    )
    classes: str | None = _place(
        None,
        help="file with one class per line, in the order of the label ids; images of other classes are rejected "
        "(default: all classes found, sorted)",
        metavar="FILE",
        example="classes.txt",
    )  # its content changes data: see data_options
    splits: dict[str, Fraction] | None = option(
        None,
        help="share of each split, such as train=0.8,validation=0.1,test=0.1; images are assigned by a stable hash of "
        "their path, or of {group} if --layout has one (default: {split} of --layout, or all in train)",
        metavar="SHARES",
        parse=table.shares,
        group=WHAT,
        example="train=0.8,validation=0.1,test=0.1",
    )
    limit: int | None = option(
        None,
        help="convert only this many images, for a trial run: the first in the order of --seed, which mixes the "
        "classes",
        metavar="N",
        parse=table.integer,
        group=WHAT,
        example="100",
    )
    compression: str = _shards("gzip", help="compression of the shard files", choices=("gzip", "none"))
    gzip_level: int | str = _shards(
        "auto",
        help="0 (stored) to 9; auto stores what is already compressed (JPEG, PNG, WebP) and compresses raw pixels",
        metavar="N",
        parse=lambda text: text if text == "auto" else table.integer(text),
    )
    num_shards: int | dict[str, int] | None = _shards(
        None,
        help="shards per split: one number for all, or train=16,test=2 (default: depends on the size)",
        metavar="N",
        parse=table.num_shards,
    )
    target_shard_bytes: int | None = _shards(
        None,
        help="size of a shard, such as 100MiB (the default); small datasets get more, smaller shards, so that they can "
        "be written and read in parallel",
        metavar="BYTES",
        parse=table.number_of_bytes,
    )
    examples_per_shard: int | None = _shards(
        None, help="maximum number of records in a shard", metavar="N", parse=table.integer
    )
    seed: int = _shards(0, help="seed for the order of the records", metavar="N", parse=table.integer)
    read_ahead: int = _run(
        storage.READ_AHEAD,
        help="images per shard to fetch while others are decoded; increase it for distant storage",
        metavar="N",
        parse=table.integer,
    )
    read_deadline_s: float = _run(
        storage.DEADLINE_S,
        help="seconds to read an image from gs://, including retries; after that, its shard stays unfinished (see "
        "--accept_unreadable)",
        metavar="SECONDS",
        parse=table.number,
    )
    gcs_project: str = _run("", help="project to bill for requests to requester-pays buckets", metavar="PROJECT")
    max_rejects: int | float = _run(
        0.01,
        help="how many images may be rejected before the run fails: a share, with a decimal point (0.01), or a count "
        "(25)",
        metavar="N",
        parse=table.share_or_number,
        example="0.05",
    )
    fail_fast: bool = _run(
        False,
        help="stop early instead of finding all rejects: at the first one or, if --max_rejects is a count, when a "
        "worker exceeds it; --max_rejects 0 also stops at the first",
    )
    allow_empty: tuple[str, ...] = _run(
        (), help="splits and classes whose images may all be rejected", metavar="NAME", many=True
    )
    accept_unreadable: bool = _run(
        False,
        help="reject images that cannot be read now but may be later: no permission, a failing disk or service; "
        "without it, the run fails and the next one tries them again",
    )
    check_finished: bool = _run(
        False,
        help="when resuming, read all finished shards and compare their SHA-256; without it, only those whose "
        "modification time (on gs://: generation) has changed since they were written",
    )
    overwrite: bool = _run(False, help="replace another dataset in the output folder (with --save_plan: another plan)")
    save_plan: str | None = _run(
        None,
        help="only list and plan: save the plan to this file, local or gs://, and leave the output folder alone",
        metavar="FILE",
    )
    plan: str | None = _run(
        None,
        help="convert from a saved plan, without listing: repeat the command with --plan instead of --save_plan, on "
        "any engine",
        metavar="FILE",
    )
    log_format: str = _run(
        "auto",
        help="how to show progress on stderr: live on a terminal, else a line every 10 s (auto); always lines (plain); "
        "or one JSON object per line (json)",
        choices=FORMATS,
        template=False,
    )
    quiet: bool = _run(False, help="hide progress; still print warnings, errors and the summary", template=False)
    json: bool = _run(False, help="print the summary as one JSON object on stdout, and nothing else", template=False)
    no_wait: bool = _run(False, help="on Dataflow: return as soon as the job is created", template=False)
    on_interrupt: str = _run(
        "ask", help="on Dataflow: what Ctrl-C does with the job", choices=("ask", "cancel", "leave"), template=False
    )

    def __post_init__(self) -> None:
        check_texts(self)
        self._normalize("encoding", self._check_tables(self.encoding))
        super().__post_init__()
        if self.resize == "none" and self.image_size != ImageOptions.image_size:  # but a manifest may hold both
            self._no_effect("image_size", "resize", "it keeps all pixels")
        self._check_places()
        self._check_labels()
        self._check_shards()
        check_range("seed", self.seed, 0, (1 << 63) - 1)
        if self.limit is not None:
            check_range("limit", self.limit, 1, MAX_LIMIT)
        check_range("read_ahead", self.read_ahead, 1, MAX_READ_AHEAD)
        if not is_number(self.read_deadline_s) or not 0 < self.read_deadline_s <= MAX_DEADLINE_S:
            allowed = f"must be above 0 and at most {MAX_DEADLINE_S} seconds"
            raise UsageError(allowed, option="read_deadline_s", value=self.read_deadline_s)
        rejects = self.max_rejects
        if not is_number(rejects) or not 0 <= rejects <= (1.0 if isinstance(rejects, float) else math.inf):
            allowed = "must be a share from 0.0 to 1.0, or a whole number without a decimal point"
            raise UsageError(allowed, option="max_rejects", value=rejects)

    def _check_places(self) -> None:
        self._normalize("input", tuple(storage.check_path(pattern, option="input") for pattern in self.input))
        given = [name for name in ("input", "input_list", "exclude") if getattr(self, name)]
        if self.table and given:
            raise UsageError(f"`{given[0]}=` and `table=` exclude each other: the table names what is read")
        if not (self.input or self.input_list or self.table) or not all(self.input):
            raise UsageError("give at least one pattern, such as 'photos/**/*.jpg', or a `table=`", option="input")
        if not self.output:
            raise UsageError("give the folder of the dataset, such as /data/flowers", option="output")
        for name in ("input_list", "output", "save_plan", "plan"):
            if path := getattr(self, name):
                self._normalize(name, storage.check_path(path, option=name))
        if self.save_plan and self.plan:
            raise UsageError("`save_plan=` and `plan=` exclude each other: the plan is already saved")
        if self.save_plan and f"{self.save_plan}/".startswith(f"{self.output.rstrip('/')}/"):
            raise UsageError("lies in `output=`; choose a file outside of it", option="save_plan", value=self.save_plan)
        if not self.name:
            last = self.output.rstrip("/").rsplit("/", 1)[-1]
            self._normalize("name", re.sub(r"[^A-Za-z0-9_]", "_", last)[:MAX_NAME] or "dataset")
        if not NAME.fullmatch(self.name) or len(self.name) > MAX_NAME:
            allowed = f"must be letters, digits and _, at most {MAX_NAME}"
            raise UsageError(allowed, option="name", value=self.name)

    def _check_labels(self) -> None:
        if self.table:
            if self.layout:
                why = "has no effect with `table=`, whose columns give labels and splits"
                raise UsageError(why, option="layout", value=self.layout)
            if self.classes and not self.label_column:
                raise UsageError("has no effect without `label_column=`", option="classes", value=self.classes)
        else:
            self._normalize("layout", "/".join(parse_layout(self.layout or "{label}/*").parts))
            if self.classes and "{label}" not in self.layout:
                why = f"has no effect with `layout={self.layout}`, which has no {{label}}"
                raise UsageError(why, option="classes", value=self.classes)
        if self.splits is not None:
            self._check_splits(self.splits)
        elif self.group_column:
            raise UsageError("has no effect without `splits=`", option="group_column", value=self.group_column)

    def _check_splits(self, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            allowed = 'must map names of splits to shares, such as {"train": 0.9, "test": 0.1}'
            raise UsageError(allowed, option="splits", value=given)
        try:
            splits = {name: Fraction(str(share)) for name, share in given.items()}
        except (ValueError, ZeroDivisionError):
            raise UsageError("each share must be a number from 0 to 1", option="splits", value=given) from None
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
        self._normalize("splits", {name: splits[name] for name in in_order(splits)})  # a manifest keeps no order

    def _check_shards(self) -> None:
        if self.gzip_level != "auto":
            if not is_int(self.gzip_level) or not 0 <= self.gzip_level <= 9:  # type: ignore[operator]
                raise UsageError("must be auto or 0 to 9", option="gzip_level", value=self.gzip_level)
            if self.compression == "none":
                why = "has no effect with `compression=none`; use one of them"
                raise UsageError(why, option="gzip_level", value=self.gzip_level)
        sizes = ("num_shards", "target_shard_bytes", "examples_per_shard")
        given = [name for name in sizes if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"`{given[0]}=` and `{given[1]}=` exclude each other: give only one of them")
        if self.num_shards is not None:
            counts = self.num_shards if isinstance(self.num_shards, dict) else {"": self.num_shards}
            for split, count in counts.items():
                of, other = (f" of {split}", "") if split else ("", ', or a dict such as {"train": 16, "test": 2}')
                check_range("num_shards", count, 1, 99_999, of=of, other=other)
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
        values: dict[str, Any] = {"classes": None if classes is None else list(classes)}
        for field in dataclasses.fields(self):
            if field.metadata["option"].changes_data:
                values[field.name] = getattr(self, field.name)
        if self.limit is None:  # the digests are those of datasets from before there was such an option
            del values["limit"]
        for name in ("image_size", "background"):
            values[name] = list(values[name])
        values["splits"] = None if self.splits is None else {name: str(share) for name, share in self.splits.items()}
        if self.encoding in OTHER_ENCODINGS:
            for field in dataclasses.fields(ImageOptions):
                if field.name not in OF_ALL_FILES:
                    del values[field.name]
        if self.table:
            del values["layout"]
            values |= self._given() | {"feature_columns": dict(columns or {}), "multi_label": multi_label}
            values.pop("image_root", None)  # a place, which changes nothing
        return values

    @property
    def most_rejects(self) -> int | None:
        """Rejects of a worker above which the run stops early; None if it does not."""
        most = self.max_rejects if isinstance(self.max_rejects, int) else 0
        return most if self.fail_fast or self.max_rejects == 0 else None

    @property
    def suffix(self) -> str:
        """File name extension of the shards."""
        return SUFFIXES[self.compression]


_OF_TABLES = {field.name for field in dataclasses.fields(TableOptions)} - {"table", "image_root"}
_CHANGING = {field.name for field in dataclasses.fields(ConvertOptions) if field.metadata["option"].changes_data}
DATA_OPTIONS = sorted(_CHANGING | _OF_TABLES | {"classes", "multi_label"})  # what `data_options` may hold


def default_threads() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
