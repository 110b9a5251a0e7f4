"""Defines the options of `convert`: input and output, classes, splits and shards.

Options for tables, images and runs are in the other modules of the package.
"""

import dataclasses
import functools
import json
import os
import re
from collections.abc import Mapping, Sequence, Set
from fractions import Fraction
from typing import Any, ClassVar, NoReturn

from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, parse_layout
from beam_tfr.options import kinds
from beam_tfr.options.groups import CARD, CLASSES, FILES, WHAT
from beam_tfr.options.image import DEFAULT_RESIZE, ImageOptions
from beam_tfr.options.implied import ROWS, implied_options, table_suffix
from beam_tfr.options.run import RunOptions
from beam_tfr.options.table import Option, option, options_of
from beam_tfr.options.tabular import NO_COLUMN, TableOptions
from beam_tfr.schema.beside import HANDLING
from beam_tfr.schema.dataset import MOST_SHARDS, shares_of
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, OTHER_ENCODINGS
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.naming import NAME, SUFFIXES
from beam_tfr.schema.number_ranges import expand_ranges
from beam_tfr.schema.renames import parse_rename, parse_renames
from beam_tfr.schema.spelling import spell_option

MAX_LIMIT = 1_000_000  # for --limit; one worker holds a short key for each image
MOST_FOLDS = 100
MAX_NAME = 100  # characters: a file name has at most 255 bytes

_place = functools.partial(option, group=WHAT, changes_data=False)
_files = functools.partial(
    _place,
    excludes={
        "table": "the table lists the files to read; `uri_column=` is its column with the paths "
        "of images, and `image_root=` the folder that the paths are relative to"
    },
)
_shards = functools.partial(option, group=FILES)
_card = functools.partial(option, "", kind=kinds.UNICODE, group=CARD, implied=True, metavar="TEXT")


def _check_layout(value: object) -> str:
    text: str = kinds.TEXT.parse_value(value)
    return str(parse_layout(text)) if text else ""


_LAYOUT = kinds.Kind(check=_check_layout, metavar="PARTS")
# The path of a mask or other image, perhaps with brackets that say how to handle it.
_BESIDE = rf"(?:gs://|(?!.*://)).*\{{(?:stem|path)(?:[%#][^\[\]{{}}]*)?\}}[^\[]*(?:{HANDLING})?"


def _check_pair(value: object) -> str:
    from beam_tfr.features.companions import parse_pair

    text: str = kinds.TEXT.parse_value(value)
    parse_pair(text)
    return text


_PAIRS = kinds.Kind(
    check=_check_pair,
    parse=str,
    expected="NAME=PATH, with {stem} or {path} in PATH, such as depth='depth/{stem}.png[255]', or "
    "[255,scale,optional,9=1,#ff0000=2]",
    pattern=rf"[A-Za-z][A-Za-z0-9_]*={_BESIDE}",
    metavar="NAME=PATTERN",
    many=True,
    has_names=True,
)


def _check_rename(value: object) -> str:
    text: str = kinds.UNICODE.parse_value(value)
    parse_rename(text)
    return text


RENAMES = kinds.Kind(check=_check_rename, metavar="OLD=NEW", many=True, has_names=True)
_PLACES = ("table", "image_root")  # options of tables that manifests do not hold
_ONE = "use only one of them"
COPIES = ("report", "group", "drop")  # the values of `duplicates`; the first changes no record
NEEDS_IMAGES = (
    "without `uri_column=` the rows become the records; name the column with the paths, or use row"
)
COPIES_OF_ROWS = (
    "rows that become records have no checksums or hashes to compare: look for equal rows in the "
    "table instead"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions(TableOptions, ImageOptions, RunOptions):
    """The checked options of one conversion.

    Attributes:
        has_implied_encoding: whether `encoding` follows from other options.

    Raises:
        UsageError: a value is not allowed, or two options exclude each other.
    """

    has_implied_encoding: ClassVar[bool]  # set for each object

    input: tuple[str, ...] = _files(
        (),
        help="folders, archives (.zip, .tar) or quoted patterns, local or gs://: * for any "
        "name, ** for any number of folders, ? for one character, [abc], {a,b}, "
        "{000..131}",
        brief="folders, archives (.zip, .tar) or quoted patterns such as 'photos/**/*.jpg', local "
        "or gs://",
        kind=kinds.Kind(metavar="DIR|GLOB", many=True, check=kinds.check_path),
    )
    input_list: str | None = _files(
        None,
        help="file with more paths and patterns, one per line",
        kind=kinds.FILE,
    )
    exclude: tuple[str, ...] = _files(
        (),
        help="patterns of files to skip, such as 'thumbs/**' and '**/*.gif', matched against "
        "the full path or the path below the common folder of all inputs",
        kind=kinds.Kind(metavar="GLOB", many=True),
    )
    output: str = _place(
        help="folder of the dataset, local or gs://",
        brief="folder of the dataset, local or gs:// (required)",
        kind=kinds.FOLDER,
    )
    name: str = _place(
        "",
        help="prefix of the shard files: letters, digits, _ (default: last part of --output)",
        metavar="NAME",
    )
    layout: str = option(
        "",  # differs from the default: folders that look like splits need an explicit layout
        help="how to read the end of each path: {label}, {split}, {group}, {number} (digits) "
        "and *, also within names: '{label}_*'. {label}/** takes the class from the "
        "first folder; '*' means no labels (default: {label}/*)",
        brief="how to read the end of each path: '{split}/{label}/*', '{label}_*'; '*' means no "
        "labels (default: {label}/*)",
        kind=_LAYOUT,
        group=CLASSES,
        excludes={"table": "columns of the table give labels and splits"},
    )
    pair: tuple[str, ...] = option(
        (),
        help="masks of the images, or other images of the same size: "
        "mask='../masks/{path}.png[255]' depth='depth/{stem}.png'. {path} is the path "
        "of the image without its extension, {stem} its name, and [255] the value of "
        "margins",
        kind=_PAIRS,
        group=WHAT,
        images_only=True,
        implied=True,
        excludes={
            "table": "specify its columns of such images, "
            "such as `feature_columns=seg:mask,depth:pair`"
        },
    )
    classes: str | None = option(
        None,
        group=CLASSES,
        changes_data=False,
        help="file with one class per line, in the order of the label ids; images of other "
        "classes are rejected. Or a dataset, whose classes keep their ids and are "
        "followed by new ones (default: all classes found, sorted)",
        brief="file with one class per line, in the order of the label ids (default: all classes "
        "found, sorted)",
        kind=kinds.CLASSES,
    )  # its content changes data: see data_options
    rename: tuple[str, ...] = option(
        (),
        help="new names for classes, which keep their ids; classes with the same new name "
        "are merged",
        kind=RENAMES,
        group=CLASSES,
        implied=True,
    )
    splits: dict[str, Fraction] | None = option(
        None,
        help="fraction of the images in each split, such as "
        "train=0.8,validation=0.1,test=0.1; approximate without --stratify (default: "
        "{split} of --layout, or all in train)",
        brief="fraction of the images in each split: train=0.8,validation=0.1,test=0.1 (default: "
        "{split} of --layout, or all in train)",
        kind=kinds.SHARES,
        group=CLASSES,
    )
    folds: int | None = option(
        None,
        help="divide the images into this many splits of equal size, fold0, fold1, …, for "
        "cross-validation",
        kind=kinds.INTEGER,
        low=2,
        high=MOST_FOLDS,
        group=CLASSES,
        implied=True,
        excludes={"splits": "folds are splits of equal size"},
    )
    stratify: bool = option(
        False,
        help="make the fractions of --splits or --folds exact in each class",
        group=CLASSES,
        implied=True,
    )
    duplicates: str = option(
        "report",
        help="what to do with images that have the same bytes or look the same. report: "
        "count them; group: put them into one split; drop: keep only the one with the "
        "most pixels",
        choices=COPIES,
        group=CLASSES,
        implied=True,
    )
    limit: int | None = option(
        None,
        help="convert only this many images, for a trial run: the first in the order of --seed",
        kind=kinds.INTEGER,
        low=1,
        high=MAX_LIMIT,
        group=WHAT,
        implied=True,
    )
    compression: str = _shards(
        "gzip",
        help="compression of the shard files; gzip stores JPEG, PNG and WebP as they are. N "
        "is the level, 0 to 9",
        brief="compression of the shard files (default: gzip)",
        choices=("gzip", "none", *(f"gzip:{level}" for level in range(10))),
        metavar="none|gzip|gzip:N",
    )
    num_shards: int | dict[str, int] | None = _shards(
        None,
        help="number of shards per split: one number for all splits, or train=16,test=2 "
        "(default: depends on the size)",
        brief="shards per split: one number for all, or train=16,test=2 (default: depends on the "
        "size)",
        kind=kinds.COUNTS,
        low=1,
        high=MOST_SHARDS,
        excludes={"target_shard_bytes": _ONE, "examples_per_shard": _ONE},
    )
    target_shard_bytes: int | None = _shards(
        None,
        help="approximate size of a shard, such as 200MiB (default: 100MiB; small datasets "
        "get more and smaller shards)",
        kind=kinds.BYTES,
        low=1 << 10,
        high=1 << 40,
        excludes={"examples_per_shard": _ONE},
    )
    examples_per_shard: int | None = _shards(
        None,
        help="maximum number of records in a shard, such as 1000",
        kind=kinds.INTEGER,
        low=1,
        high=1 << 40,
    )
    seed: int = _shards(0, help="seed for the order of the records", low=0, high=(1 << 63) - 1)
    description: str = _card(help="what the images show")
    license: str = _card(
        help="license of the images: an identifier from the Hugging Face Hub, such as "
        "cc-by-4.0, or a URL"
    )
    citation: str = _card(help="how to cite the source of the images")

    def complete_options(self) -> None:
        for name in ("input", "table"):
            patterns = expand_ranges(getattr(self, name), option=name)
            self.set_option(name, tuple(patterns))
        self._set_implied_options()
        self.set_option("has_implied_encoding", not self.encoding)
        if not self.encoding:
            self.set_option("encoding", "row" if self.are_rows else "jpeg")
        self.set_option("pair", tuple(sorted(self.pair)))
        self.set_option("rename", tuple(sorted(self.rename)))
        if not self.name:
            folder = self.output.rstrip("/").rpartition("/")[2]
            name = re.sub(r"[^A-Za-z0-9_]", "_", folder)[:MAX_NAME]
            self.set_option("name", name or "dataset")

    def describe_images_only(self) -> str:
        reason = super().describe_images_only()
        if self.are_rows and self.has_implied_encoding:
            return f"{reason}; name the column with their paths as `uri_column=`"
        return reason

    def _set_implied_options(self) -> None:
        """Sets options that the table implies and the user has not set."""
        if not self.table:
            return
        for name, value in implied_options(self.table[0], vars(self)).items():
            if not self.is_given(name) and not (name == "split_column" and self.shares):
                self.set_option(name, value)

    @property
    def shares(self) -> dict[str, Fraction]:
        """The share of the images for each split; empty if neither `splits` nor `folds` is set."""
        return shares_of(vars(self))

    @property
    def shares_option(self) -> str:
        """The option that sets the shares of splits, or an empty string."""
        if self.folds:
            return "folds"
        return "splits" if self.splits else ""

    @property
    def settles_copies(self) -> bool:
        """Whether copies are grouped or dropped after all images are converted."""
        return self.duplicates != COPIES[0]

    @property
    def are_rows(self) -> bool:
        """Whether the rows of a table become the records."""
        return bool(self.table) and not self.uri_column

    @property
    def may_become_images(self) -> bool:
        """Whether rows are used as records by default, because no option says otherwise.

        The columns may then show that the rows are boxes in images: see `tables.box_columns`.
        """
        is_chosen = self.key_column or self.feature_columns is not None
        allows_images = self.has_implied_encoding or self.encoding in IMAGE_ENCODINGS
        return self.are_rows and allows_images and not is_chosen

    def check_image_options(self) -> None:
        super().check_image_options()
        self._check_rows()
        self._check_labels()

    def check_combination(self) -> None:
        super().check_combination()
        has_input = self.input or self.input_list or self.table
        if not has_input or not all(self.input):
            raise UsageError(
                "specify at least one pattern, such as 'photos/**/*.jpg', or a `table=`",
                option="input",
            )
        if not self.output:
            raise UsageError(
                "specify the folder of the dataset, such as /data/flowers", option="output"
            )
        if not NAME.fullmatch(self.name) or len(self.name) > MAX_NAME:
            self.refuse("name", f"must be letters, digits and _, at most {MAX_NAME}")
        if self.resize == "none" and self.is_given("image_size"):  # a manifest may hold both
            self.refuse_beside("image_size", "resize", "it keeps all pixels")
        if not self.may_become_images:
            self._check_rows()
        self._check_features()
        if not self._may_imply_labels():
            self._check_labels()
        self._check_splits()
        self._check_duplicates()

    def _check_rows(self) -> None:
        if self.are_rows and self.encoding != "row":
            self.refuse("encoding", NEEDS_IMAGES)
        if self.encoding == "row" and not self.are_rows:
            self.refuse("encoding", "is for rows of a `table=` without `uri_column=`")
        if self.encoding == "row" and self.settles_copies:
            self.refuse("duplicates", COPIES_OF_ROWS)

    def _check_duplicates(self) -> None:
        if not self.settles_copies:
            return
        if self.duplicates == "group" and self.group_column:
            self.refuse_beside(
                "duplicates",
                "group_column",
                "copies may be in different groups: `beam-tfr duplicates` lists the copies in a "
                "dataset; assign them the same group in the table",
            )

    def _check_features(self) -> None:
        """Checks that the columns and the pairs of images can be in one dataset."""
        from beam_tfr.features.companions import find_pair_conflict
        from beam_tfr.features.features_dict import FeaturesDict
        from beam_tfr.features.registry import find_conflict

        features = FeaturesDict.from_options(vars(self))
        conflict = find_conflict(features.columns, are_images=self.encoding in IMAGE_ENCODINGS)
        if conflict:
            self.refuse("feature_columns", conflict)
        conflict = find_pair_conflict(features.companions)
        if conflict:
            self.refuse("pair" if self.pair else "feature_columns", conflict)

    def _may_imply_labels(self) -> bool:
        """Whether columns that have not been read yet may imply `label_column`, as with boxes."""
        return bool(self.table) and not self.label_column and table_suffix(self.table[0]) in ROWS

    def _check_labels(self) -> None:
        """Checks that options about classes have an effect."""
        for name in ("classes", "rename"):
            if not getattr(self, name):
                continue
            if self.table and not self.label_column:
                self.refuse(name, "has no effect without `label_column=`")
            if self.layout and "{label}" not in self.layout:
                self.refuse(
                    name,
                    f"has no effect with {spell_option('layout', self.layout)}, which has no "
                    "{label}",
                )
        try:
            parse_renames(self.rename)
        except ValueError as error:
            self.refuse("rename", str(error))

    def _check_splits(self) -> None:
        if not self.shares:
            for name in ("group_column", "stratify"):
                if self.is_given(name):
                    raise UsageError(f"`{name}=` has no effect without `splits=` or `folds=`")
            if "{group}" in self.layout:
                self.refuse(
                    "layout",
                    "{group} has no effect without `splits=` or `folds=`; * stands for any text",
                )
            return
        other = ""
        if "{split}" in self.layout:
            other = f"{{split}} in {spell_option('layout', self.layout)}"
        elif self.column_of_splits:
            other = spell_option("split_column", self.split_column)
        if other:
            self.refuse(self.shares_option, f"cannot be combined with {other}; use one of them")

    def refuse_other_splits(self, given: str) -> NoReturn:
        """Raises the UsageError for shares of splits if tables already define the splits.

        Args:
            given: description of what defines the splits, and of the splits.
        """
        name = self.shares_option
        self.refuse(
            name,
            f"{given}: leave `{name}=` out to keep these splits, or add "
            f"{spell_option('split_column', NO_COLUMN)} to divide all rows again",
        )

    def data_options(
        self,
        classes: Sequence[str] | None,
        *,
        columns: Mapping[str, str] | None = None,
        multi_label: bool = False,
    ) -> dict[str, Any]:
        """Returns the options that can change a record, a shard or a reject, as JSON values.

        Digests cover these options, and the manifest holds them.

        Args:
            classes: content of the file in `classes`.
            columns: table column -> type, for the columns that become features.
            multi_label: whether table rows may have any number of labels.
        """
        values: dict[str, Any] = {
            name: getattr(self, name)
            for name, about in options_of(type(self)).items()
            if self._changes_data(name, about)
        }
        values |= self.stored_compression
        values["classes"] = classes
        if "resize" in values:
            values["resize"] = self.choose_resize(columns)
        if self.table:
            values |= self._table_options()
            values["feature_columns"] = columns or {}
            values["multi_label"] = multi_label
            values.pop("layout", None)
        else:
            values["layout"] = self.layout or DEFAULT_LAYOUT
        text = json.dumps(values, default=str)  # turns fractions into text
        as_json: dict[str, Any] = json.loads(text)
        return as_json

    def choose_resize(self, columns: Mapping[str, str] | None) -> str:
        """Returns the resize mode: the user's, or the default for these features.

        Args:
            columns: table column -> type, for the columns that become features.
        """
        from beam_tfr.features.features_dict import FeaturesDict

        if self.resize:
            return self.resize
        features = FeaturesDict.from_options(
            {"encoding": self.encoding, "feature_columns": columns, "pair": self.pair}
        )
        return "pad" if features.marks_places else DEFAULT_RESIZE

    def _changes_data(self, name: str, about: Option) -> bool:
        """Whether an option is one of `data_options`."""
        if not about.changes_data:
            return False
        if about.images_only and self.encoding in OTHER_ENCODINGS:
            return False
        return self.is_given(name) or not about.implied

    def _table_options(self) -> dict[str, Any]:
        """Returns the table options that are set, without paths, which do not change the data."""
        values = {
            name: getattr(self, name) for name in options_of(TableOptions) if self.is_given(name)
        }
        for place in _PLACES:
            values.pop(place, None)
        return values

    @property
    def stored_compression(self) -> dict[str, Any]:
        """The compression and the gzip level, which plans and manifests store separately."""
        kind, _, level = self.compression.partition(":")
        return {"compression": kind, "gzip_level": int(level) if level else "auto"}

    @property
    def suffix(self) -> str:
        """The file name extension of the shards."""
        return SUFFIXES[self.stored_compression["compression"]]


def stored_names(options: type[ConvertOptions]) -> Set[str]:
    """Returns the names of the options that manifests hold: see `ConvertOptions.data_options`."""
    changing = {name for name, about in options_of(options).items() if about.changes_data}
    return (changing | options_of(TableOptions).keys() | {"classes"}) - {*_PLACES}


def default_threads() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
