"""Every option of `convert`: those of the images, and what is read, written and run."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_tfr import storage
from beam_tfr.labels import parse_layout
from beam_tfr.naming import NAME, SUFFIXES
from beam_tfr.options import table
from beam_tfr.options.image import OF_ALL_FILES, ImageOptions
from beam_tfr.options.table import FILES, RUN, WHAT, check_range, is_int, is_number, option, refuse
from beam_tfr.options.tabular import TableOptions
from beam_tfr.schema import NO_SPLIT, OTHER_ENCODINGS, UsageError

MAX_READ_AHEAD = 1024  # each has a thread
MAX_DEADLINE_S = 86_400
MAX_NAME = 100  # characters: a file name has at most 255 bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions(TableOptions, ImageOptions):
    """The options of one conversion, checked.

    Raises:
        UsageError: a value that is not allowed, or two options that exclude each other.
    """

    input: tuple[str, ...] = option(
        (),
        help="patterns of image files, on disk or gs://, quoted: * any name, ** any number of folders, ? one "
        "character, [abc], {a,b}; a file matched twice counts once",
        metavar="GLOB",
        many=True,
        group=WHAT,
        changes_data=False,
    )
    input_list: str | None = option(
        None,
        help="file with more of them, one path or pattern a line, on disk or gs://",
        metavar="FILE",
        group=WHAT,
        changes_data=False,
    )
    exclude: tuple[str, ...] = option(
        (),
        help="patterns of files to leave out: of whole paths, or of what comes below the folder that all inputs share: "
        "'thumbs/**', '**/*.gif'",
        metavar="GLOB",
        many=True,
        group=WHAT,
        changes_data=False,
    )
    output: str = option(help="folder of the dataset, on disk or gs://", metavar="DIR", group=WHAT, changes_data=False)
    name: str = option(
        "",
        help="prefix of the shard files: letters, digits, _ (default: last part of --output)",
        metavar="NAME",
        group=WHAT,
        changes_data=False,
    )
    layout: str = option(
        "",  # not given, which --table must know
        help="how the last parts of a path are read: {label}, {split}, {group}, *; '*' alone: no labels (default: "
        "{label}/*)",
        metavar="PARTS",
        group=WHAT,
    )
    classes: str | None = option(
        None,
        help="file with one class per line, in the order of their ids; images of other classes are rejected "
        "(default: all classes found, sorted)",
        metavar="FILE",
        group=WHAT,
        changes_data=False,  # its content is: see data_options
    )
    splits: dict[str, Fraction] | None = option(
        None,
        help="shares by a stable hash of the path, or of {group} where --layout has one: "
        "train=0.8,validation=0.1,test=0.1 (default: all in train, or {split} of --layout)",
        metavar="SHARES",
        parse=table.shares,
        group=WHAT,
    )
    compression: str = option("gzip", help="of the files", choices=("gzip", "none"), group=FILES)
    gzip_level: int | str = option(
        "auto",
        help="0 (stored) to 9; auto stores what is compressed already (JPEG, PNG, WebP), not raw pixels",
        metavar="N",
        parse=lambda flag, text: text if text == "auto" else table.integer(flag, text),
        group=FILES,
    )
    num_shards: int | dict[str, int] | None = option(
        None,
        help="files per split: a number, or train=16,test=2 (default: from the size)",
        metavar="N",
        parse=table.num_shards,
        group=FILES,
    )
    target_shard_bytes: int | None = option(
        None,
        help="size of a file, such as 100MiB (the default); small datasets get more and smaller files, so that they "
        "are written and read in parallel",
        metavar="BYTES",
        parse=table.number_of_bytes,
        group=FILES,
    )
    examples_per_shard: int | None = option(
        None, help="at most so many records in a file", metavar="N", parse=table.integer, group=FILES
    )
    seed: int = option(0, help="of the order of the records", metavar="N", parse=table.integer, group=FILES)
    read_ahead: int = option(
        storage.READ_AHEAD,
        help="images of a shard that are fetched while others are decoded; more for a store that is far away",
        metavar="N",
        parse=table.integer,
        group=RUN,
        changes_data=False,
    )
    read_deadline_s: float = option(
        storage.DEADLINE_S,
        help="seconds for an image on gs:// with all its tries; then it is rejected as unreadable",
        metavar="SECONDS",
        parse=table.number,
        group=RUN,
        changes_data=False,
    )
    gcs_project: str = option(
        "",
        help="project that pays for requests to gs:// buckets whose requesters pay",
        metavar="PROJECT",
        group=RUN,
        changes_data=False,
    )
    max_rejects: int | float = option(
        0.01,
        help="more unusable images fail the run: a share with a decimal point (0.01), or a number (25)",
        metavar="N",
        parse=table.share_or_number,
        group=RUN,
        changes_data=False,
    )
    overwrite: bool = option(
        False,
        help="replace another dataset in the output (with --save_plan: another plan)",
        parse=table.boolean,
        group=RUN,
        changes_data=False,
    )
    save_plan: str | None = option(
        None,
        help="list and plan only, and save that as a file, local or on gs://; the output is not touched",
        metavar="FILE",
        group=RUN,
        changes_data=False,
    )
    plan: str | None = option(
        None,
        help="go on from a saved plan: the same command with --plan in place of --save_plan, on any engine, lists "
        "nothing",
        metavar="FILE",
        group=RUN,
        changes_data=False,
    )
    json: bool = option(
        False,
        help="the summary as one JSON object on stdout, nothing else",
        parse=table.boolean,
        group=RUN,
        changes_data=False,
        template=False,
    )

    no_wait: bool = option(
        False,
        help="on Dataflow: return when the job is created",
        parse=table.boolean,
        group=RUN,
        changes_data=False,
        template=False,
    )
    on_interrupt: str = option(
        "ask",
        help="on Dataflow: what Ctrl-C does with the job",
        choices=("ask", "cancel", "leave"),
        group=RUN,
        changes_data=False,
        template=False,
    )

    def __post_init__(self) -> None:
        self._normalize("encoding", self._check_tables(self.encoding))
        super().__post_init__()
        for name in ("input", "exclude"):
            if isinstance(given := getattr(self, name), str):
                refuse(name, given, f"must be a tuple of patterns, such as ({given!r},)")
        self._normalize("input", tuple(storage.check_path(pattern, option="input") for pattern in self.input))
        inputs = [name for name in ("input", "input_list", "exclude", "table") if getattr(self, name)]
        if self.table and len(inputs) > 1:
            raise UsageError(f"`{inputs[0]}=` and `table=` exclude each other: the table names what is read")
        if not (self.input or self.input_list or self.table) or not all(self.input):
            raise UsageError("give at least one pattern, such as 'photos/**/*.jpg', or a `table=`", option="input")
        for name in ("input_list", "save_plan", "plan"):
            if path := getattr(self, name):
                self._normalize(name, storage.check_path(path, option=name))
        if self.save_plan and self.plan:
            raise UsageError("`save_plan=` and `plan=` exclude each other: the plan is saved already")
        check_range("read_ahead", self.read_ahead, 1, MAX_READ_AHEAD)
        if not is_number(self.read_deadline_s) or not 0 < self.read_deadline_s <= MAX_DEADLINE_S:
            refuse("read_deadline_s", self.read_deadline_s, f"must be above 0 and at most {MAX_DEADLINE_S} seconds")
        if not self.output:
            raise UsageError("give the folder of the dataset, such as /data/flowers", option="output")
        self._normalize("output", storage.check_path(self.output, option="output"))
        if self.save_plan and f"{self.save_plan}/".startswith(f"{self.output.rstrip('/')}/"):
            refuse("save_plan", self.save_plan, "lies in `output=`; choose a file outside of it")
        if not self.name:
            last = self.output.rstrip("/").rsplit("/", 1)[-1]
            self._normalize("name", re.sub(r"[^A-Za-z0-9_]", "_", last)[:MAX_NAME] or "dataset")
        if not NAME.fullmatch(self.name) or len(self.name) > MAX_NAME:
            refuse("name", self.name, f"may hold letters, digits and _ only, at most {MAX_NAME}")
        if self.table and self.layout:
            refuse("layout", self.layout, "has no effect with `table=`, whose columns say labels and splits")
        if not self.table:
            self._normalize("layout", "/".join(parse_layout(self.layout or "{label}/*").parts))
        if self.classes and not self.table and "{label}" not in self.layout:
            refuse("classes", self.classes, f"has no effect with `layout={self.layout}`, which names no {{label}}")
        if self.classes and self.table and not self.label_column:
            refuse("classes", self.classes, "has no effect with `table=` without `label_column=`")
        if self.group_column and self.splits is None:
            refuse("group_column", self.group_column, "has no effect without `splits=`")
        if self.splits is not None:
            self._normalize("splits", {name: _share(name, share) for name, share in self.splits.items()})
            self._check_splits(self.splits)
        if self.gzip_level != "auto":
            if not is_int(self.gzip_level) or not 0 <= self.gzip_level <= 9:  # type: ignore[operator]
                refuse("gzip_level", self.gzip_level, "must be auto or 0 to 9")
            if self.compression == "none":
                refuse("gzip_level", self.gzip_level, "has no effect with `compression=none`; use one of them")
        self._check_shards()
        check_range("seed", self.seed, -(1 << 63), (1 << 63) - 1)
        if not isinstance(self.max_rejects, (int, float)) or isinstance(self.max_rejects, bool):
            refuse("max_rejects", self.max_rejects, "must be a share, 0.0 to 1.0, or a whole number")
        if isinstance(self.max_rejects, float) and not 0.0 <= self.max_rejects <= 1.0:
            refuse(
                "max_rejects",
                self.max_rejects,
                "a share must be from 0.0 to 1.0; without a decimal point it is a number",
            )
        if self.max_rejects < 0:
            refuse("max_rejects", self.max_rejects, "must not be negative")

    def _check_splits(self, splits: Mapping[str, Fraction]) -> None:
        text = ",".join(f"{name}={float(share):g}" for name, share in splits.items())
        if "{split}" in self.layout:
            refuse("splits", text, f"not together with {{split}} in `layout={self.layout}`; use one of them")
        if self.split_column:
            refuse("splits", text, f"not together with `split_column={self.split_column}`; use one of them")
        for name, share in splits.items():
            if not NAME.fullmatch(name) or name == NO_SPLIT:
                refuse(
                    "splits",
                    text,
                    f"{name!r} is no name of a split; allowed are letters, digits and _, but not {NO_SPLIT}",
                )
            if share <= 0:
                refuse("splits", text, f"the share of {name} must be above 0; leave the split out instead")
        if abs(sum(splits.values(), Fraction(-1))) > Fraction(1, 10**6):
            refuse("splits", text, f"the shares must add up to 1, they add up to {float(sum(splits.values())):g}")

    def _check_shards(self) -> None:
        given = [
            name
            for name in ("num_shards", "target_shard_bytes", "examples_per_shard")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise UsageError(f"`{given[0]}=` and `{given[1]}=` exclude each other: give only one of them")
        if self.num_shards is not None:
            counts = self.num_shards if isinstance(self.num_shards, dict) else {"": self.num_shards}
            for split, count in counts.items():
                check_range("num_shards", count, 1, 99_999, of=f" of {split}" if split else "")
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
            classes: the content of the file that --classes names.
            columns: of a table: those that become features -> their types.
            multi_label: of a table: whether each of its rows has any number of labels.
        """
        values: dict[str, Any] = {"classes": None if classes is None else list(classes)}
        for field in dataclasses.fields(self):
            if field.metadata["option"].changes_data:
                values[field.name] = getattr(self, field.name)
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
            values.pop("image_root", None)  # a place
        return values

    @property
    def suffix(self) -> str:
        return SUFFIXES[self.compression]


def _share(name: str, share: object) -> Fraction:
    try:
        return Fraction(str(share))
    except (ValueError, ZeroDivisionError):
        refuse("splits", f"{name}={share}", "must be a number from 0 to 1")


def default_threads() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
