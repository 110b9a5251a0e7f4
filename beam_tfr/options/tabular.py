"""Defines the options for tables: the roles of columns, and the columns that become features."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_tfr.options import kinds
from beam_tfr.options.groups import BOXES, TABLES
from beam_tfr.options.table import Checked, option

if TYPE_CHECKING:  # features need NumPy, which would make each command slow to start
    from beam_tfr.features.boxes import BoxPolicy

_table = functools.partial(option, group=TABLES, changes_data=False)
_column = functools.partial(_table, only_with={"table": ()})
_of_boxes = functools.partial(option, group=BOXES, only_with={"table": ()}, implied=True)
_DECLARED = re.compile(r"(?:[^,\[\]]++|\[[^\[\]]*+\]|[\[\]])++")  # commas may be in brackets
NO_COLUMN = "none"  # for `split_column`: ignores the splits in tables
BOX_OPTIONS = ("min_visible", "bad_boxes", "no_boxes")


def _parse_columns(text: str) -> dict[str, str]:
    """Parses `age:int64,score` into column -> declaration, which may be empty."""
    declarations = dict[str, str]()
    for part in _DECLARED.findall(text):
        name, declaration = _split_column(part)
        if name in declarations:
            raise ValueError(f"names {name} twice")
        declarations[name] = declaration
    return declarations


def _split_column(text: str) -> tuple[str, str]:
    """Splits a column into its name, which may contain colons, and its declaration."""
    from beam_tfr.features.registry import is_declaration

    colon = text.find(":", 1)
    while colon > 0:
        declaration = text[colon + 1 :]
        if ":" not in declaration or is_declaration(declaration):
            return text[:colon], declaration
        colon = text.find(":", colon + 1)
    return text, ""


def _check_columns(value: Any) -> dict[str, str]:
    from beam_tfr.features.registry import parse_columns

    if isinstance(value, list):
        value = ",".join(map(str, value))
    if isinstance(value, str):
        value = _parse_columns(value)
    if not isinstance(value, Mapping):
        raise ValueError('must map names of columns to types, such as {"age": "int64"}')
    for name, declaration in value.items():
        try:
            parse_columns({name: declaration})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}, such as age:int64,score,marks:float[]") from None
    return dict(value)


def _spell_columns(columns: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{kind}".rstrip(":") for name, kind in columns.items())


_COLUMNS = kinds.Kind(check=_check_columns, spell=_spell_columns, metavar="COLUMNS")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(Checked):
    """The options in `ConvertOptions` that are about tables."""

    table: tuple[str, ...] = _table(
        (),
        help="tables, or patterns that match tables, to read instead of --input: CSV, TSV, "
        "JSON Lines, Parquet; annotations of COCO, Create ML, Pascal VOC (.xml), YOLO "
        "(data.yaml); TFRecords, WebDataset tars; datasets (manifest.json, or "
        "dataset_info.json of TFDS)",
        brief="table to read instead of --input: CSV, TSV, JSON Lines, Parquet, annotations of "
        "COCO, VOC or YOLO, TFRecords, tars, another dataset",
        kind=kinds.Kind(metavar="FILE", many=True, check=kinds.check_path),
    )
    uri_column: str = _column(
        "",
        help="column with the path of each image, or with the image itself; annotations, "
        "TFRecords and tars usually need none. Without it, the rows of other tables "
        "become the records",
        metavar="NAME",
    )
    image_root: str = _column(
        "",
        help="folder that paths and keys are relative to (default: the folder of the table, or "
        "the common folder of all paths if none is relative)",
        kind=kinds.FOLDER,
    )
    key_column: str = _column(
        "",
        help="column with a unique name for each row, without --uri_column (default: table "
        "and row number)",
        metavar="NAME",
        excludes={"uri_column": "the path of a file is its key"},
    )
    label_column: str = _column(
        "",
        help="column with the class, or with a list of classes",
        brief="column of the table with the class, or with a list of classes",
        metavar="NAME",
    )
    label_separator: str = _column(
        "",
        help="separator of classes in --label_column, such as '|', for images with several classes",
        metavar="TEXT",
        only_with={"table": (), "label_column": ()},
    )
    split_column: str = _column(
        "",
        help="column with the split; none ignores the splits of the tables (default: "
        "--splits; else a column named split, VOC's ImageSets, or the folders and names "
        "of the tables)",
        metavar="NAME",
    )
    group_column: str = _column(
        "",
        help="column that defines groups: --splits keeps rows with the same value together",
        metavar="NAME",
    )
    na_values: tuple[str, ...] = _column(
        (),
        help="cell values that stand for a missing value, such as NA -999 (default: none)",
        kind=kinds.Kind(metavar="TEXT", many=True),
    )
    feature_columns: Mapping[str, str] | None = _column(
        None,
        help="columns that become features, with their types if the first rows do not show "
        "them: age:int64=-1 or score:float,tags:bytes[],size:enum(s|m|l). "
        "box:bbox[xyxy] holds boxes, joint:points[xyv] keypoints, segment:mask[box] "
        "masks of boxes, depth:float[box] values of boxes, seg:mask the path of a mask, "
        "ir:pair that of another image; * means all other columns (default: none, or "
        "all without --uri_column)",
        kind=_COLUMNS,
    )  # the columns found change data: see data_options
    min_visible: float = _of_boxes(
        0.1,
        help="fraction of its area that a box must keep when resizing cuts off part of it; "
        "boxes that keep less are dropped",
        kind=kinds.NUMBER,
        metavar="FRACTION",
        low=0,
        high=1,
    )
    bad_boxes: str = _of_boxes(
        "reject",
        help="what to do with boxes that have no area, are outside of their image, or are "
        "not four finite numbers. reject: reject their images; drop: drop only these "
        "boxes",
        choices=("reject", "drop"),
    )
    no_boxes: str = _of_boxes(
        "keep",
        help="what to do with images without a box. keep: store them as background; reject: "
        "reject them, without counting towards --max_rejects",
        choices=("keep", "reject"),
    )

    def refuse_box_options(self) -> None:
        """Raises an error for options about boxes if there are no boxes.

        Raises:
            UsageError: such an option is set.
        """
        for name in BOX_OPTIONS:
            if self.is_given(name):
                self.refuse(
                    name, "has no effect without boxes, such as `feature_columns='box:bbox[xyxy]'`"
                )

    @property
    def roles(self) -> list[str]:
        """The columns that have a role other than feature, each once."""
        columns = (
            self.uri_column,
            self.key_column,
            self.label_column,
            self.column_of_splits,
            self.group_column,
        )
        return list(dict.fromkeys(filter(None, columns)))

    @property
    def column_of_splits(self) -> str:
        """The column that `split_column` selects, or an empty string."""
        return "" if self.split_column == NO_COLUMN else self.split_column

    @property
    def box_policy(self) -> "BoxPolicy":
        """How to treat invalid or barely visible boxes, and images without boxes."""
        from beam_tfr.features.boxes import BoxPolicy

        return BoxPolicy(
            min_visible=self.min_visible,
            drop_bad=self.bad_boxes == "drop",
            need_box=self.no_boxes == "reject",
        )
