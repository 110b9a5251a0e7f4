"""The options for tables: which columns hold paths, labels and splits, and which become features."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.options.table import TABLES, Checked, option, options_of
from beam_tfr.schema import UsageError
from beam_tfr.schema.features import column_feature

_column = functools.partial(option, group=TABLES, changes_data=False)
_EXAMPLE = "age:int64,score,marks:float[]"
_TYPED = re.compile(r"(.+?):((?:int64|float|bytes|enum\([^()]*\))(?:\[\])?(?:=.*)?)", re.DOTALL)


def feature_columns(text: str) -> dict[str, str]:
    """Parses `age:int64,score` to column -> type; the type is empty where it is not given."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        match = _TYPED.fullmatch(part)
        name, kind = match.groups() if match else (part, "")
        if not match and ":" in part:
            kind = part.rpartition(":")[2]
            raise ValueError(f"{kind!r} is not a type; use int64, float, bytes or enum(a|b), with [] for lists")
        if name in found:
            raise ValueError(f"names {name} twice")
        found[name] = kind
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(Checked):
    """The options of `ConvertOptions` for tables."""

    table: tuple[str, ...] = _column(
        (),
        help="tables to read instead of --input: CSV, TSV, JSON Lines (.gz too), Parquet; paths or patterns, local or gs://",
        metavar="FILE",
        many=True,
        example="labels.csv",
    )
    uri_column: str = _column(
        "",
        help="column with the path of each image: gs://, absolute, or relative to --image_root; without it, the rows "
        "themselves become the records",
        metavar="NAME",
        example="path",
    )
    image_root: str = _column(
        "",
        help="folder that paths and keys are relative to (default: the folder of the table, or the one that all paths "
        "share if none is relative)",
        metavar="DIR",
    )
    key_column: str = _column(
        "",
        help="column with a unique name for each row, if there is no --uri_column (default: table and row number)",
        metavar="NAME",
    )
    label_column: str = _column(
        "",
        help="column with the class, or with a list of classes",
        metavar="NAME",
        example="class",
    )
    label_separator: str = _column(
        "",
        help="separator of classes in --label_column, such as '|'; a row can then have any number of labels",
        metavar="TEXT",
    )
    split_column: str = _column("", help="column with the split (default: --splits)", metavar="NAME")
    group_column: str = _column(
        "", help="column by which --splits assigns rows: equal values go to the same split", metavar="NAME"
    )
    feature_columns: Mapping[str, str] | None = _column(
        None,
        help="columns that become features, with their types if the first rows do not show them: "
        "age:int64,score:float,marks:float[],tags:bytes[], size:enum(s|m|l), and rank:int64=-1 with a default; * means "
        "all others (default: none, or all without --uri_column)",
        metavar="COLUMNS",
        parse=feature_columns,
    )  # the columns found change data: see data_options

    def _check_tables(self, encoding: str) -> str:
        """Checks the table options and returns the encoding, which is `row` for tables without files.

        Raises:
            UsageError: a value is not allowed, or an option has no effect.
        """
        self.normalize("table", tuple(storage.check_path(path, option="table") for path in self.table))
        given = self._given()
        if given and not self.table:
            raise UsageError(f"`{next(iter(given))}=` has no effect without `table=`")
        if self.feature_columns is not None:
            if not isinstance(self.feature_columns, Mapping):
                self.refuse("feature_columns", 'must map names of columns to types, such as {"age": "int64"}')
            columns = dict(self.feature_columns)
            for name, kind in columns.items():
                try:
                    column_feature(kind or "bytes")
                except (TypeError, ValueError) as error:
                    allowed = f"{error}, such as {_EXAMPLE}"
                    raise UsageError(allowed, option="feature_columns", value=f"{name}:{kind}") from None
            self.normalize("feature_columns", columns)
        for name, other in (("image_root", "uri_column"), ("label_separator", "label_column")):
            if getattr(self, name) and not getattr(self, other):
                raise UsageError(f"`{name}=` has no effect without `{other}=`")
        if self.key_column and self.uri_column:
            raise UsageError("`key_column=` and `uri_column=` cannot be combined: the path of a file is its key")
        if not self.table or self.uri_column:
            if encoding == "row":
                raise UsageError("is for rows of a `table=` without `uri_column=`", option="encoding", value=encoding)
            return encoding
        if encoding not in ("", "row"):
            cure = "without `uri_column=` the rows become the records; name the column with the paths, or use row"
            raise UsageError(cure, option="encoding", value=encoding)
        return "row"

    def _given(self) -> dict[str, Any]:
        """The options that are given, apart from `table`."""
        return {
            name: getattr(self, name) for name in options_of(TableOptions) if name != "table" and getattr(self, name)
        }
