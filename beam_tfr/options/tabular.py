"""What a table says: which of its columns names the files, labels and splits, and which become features."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.options.table import TABLES, option, refuse
from beam_tfr.schema import UsageError, column_feature

_EXAMPLE = "age:int64,score,box:float[]"
_TYPED = re.compile(r"(.+?):((?:int64|float|bytes|enum\([^()]*\))(?:\[\])?(?:=.*)?)", re.DOTALL)


def feature_columns(flag: str, text: str) -> dict[str, str]:
    """Column -> type, empty where it is not given."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        match = _TYPED.fullmatch(part)
        name, kind = match.groups() if match else (part, "")
        if not match and ":" in part:
            kind = part.rpartition(":")[2]
            refuse(flag, text, f"{kind!r} is no type; there are int64, float, bytes, enum(a|b), and [] for lists")
        if name in found:
            refuse(flag, text, f"names {name} twice")
        found[name] = kind
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The part of `ConvertOptions` that is about tables."""

    table: tuple[str, ...] = option(
        (),
        help="tables in place of --input: CSV, TSV, JSON Lines (.gz too), Parquet; paths or patterns, on disk or gs://",
        metavar="FILE",
        many=True,
        group=TABLES,
        changes_data=False,
    )
    uri_column: str = option(
        "",
        help="column with the path of each image, on gs://, absolute, or below --image_root; without it the rows "
        "themselves become the records",
        metavar="NAME",
        group=TABLES,
        changes_data=False,
    )
    image_root: str = option(
        "",
        help="folder that the paths, and so the keys, are below (default: that of the table, or the one that all "
        "paths have in common where none is relative)",
        metavar="DIR",
        group=TABLES,
        changes_data=False,
    )
    key_column: str = option(
        "",
        help="column with a name for each row, without --uri_column (default: table and number of the row)",
        metavar="NAME",
        group=TABLES,
        changes_data=False,
    )
    label_column: str = option(
        "", help="column with the class, or with a list of them", metavar="NAME", group=TABLES, changes_data=False
    )
    label_separator: str = option(
        "",
        help="between the classes of a text, such as '|': any number of labels each",
        metavar="TEXT",
        group=TABLES,
        changes_data=False,
    )
    split_column: str = option(
        "", help="column with the split (default: --splits)", metavar="NAME", group=TABLES, changes_data=False
    )
    group_column: str = option(
        "",
        help="column whose equal values fall into one split of --splits",
        metavar="NAME",
        group=TABLES,
        changes_data=False,
    )
    feature_columns: Mapping[str, str] | None = option(
        None,
        help="columns that become features, each with a type where the first rows do not say it: "
        "age:int64,score:float,box:float[],tags:bytes[], also size:enum(s|m|l), and rank:int64=-1 for rows without a "
        "value; * stands for all others (default: none, or without --uri_column all)",
        metavar="COLUMNS",
        parse=feature_columns,
        group=TABLES,
        changes_data=False,  # those that are found are: see data_options
    )

    def _check_tables(self, encoding: str) -> str:
        """The encoding, which is that of rows without --uri_column; empty where none is given.

        Raises:
            UsageError: a value that is not allowed, or an option that has no effect.
        """
        if isinstance(self.table, str):
            refuse("table", self.table, f"must be a tuple of paths, such as ({self.table!r},)")
        object.__setattr__(self, "table", tuple(storage.check_path(path, option="table") for path in self.table))
        given = self._given()
        if given and not self.table:
            raise UsageError(f"`{next(iter(given))}=` has no effect without `table=`")
        if self.feature_columns is not None:
            columns = self.feature_columns
            columns = feature_columns("feature_columns", columns) if isinstance(columns, str) else dict(columns)
            for name, kind in columns.items():
                try:
                    column_feature(kind or "bytes")
                except (TypeError, ValueError) as error:
                    refuse("feature_columns", f"{name}:{kind}", f"{error}, such as {_EXAMPLE}")
            object.__setattr__(self, "feature_columns", columns)
        for name, other in (("image_root", "uri_column"), ("label_separator", "label_column")):
            if getattr(self, name) and not getattr(self, other):
                raise UsageError(f"`{name}=` has no effect without `{other}=`")
        if self.key_column and self.uri_column:
            raise UsageError("`key_column=` and `uri_column=` exclude each other: the path of a file is its key")
        if not self.table or self.uri_column:
            if encoding == "row":
                refuse("encoding", encoding, "is for the rows of a `table=` without `uri_column=`")
            return encoding
        if encoding not in ("", "row"):
            refuse(
                "encoding",
                encoding,
                "there are no files to read, the rows become the records (row); name the column with the paths of the "
                "files: `uri_column=`, or leave `encoding=` out",
            )
        return "row"

    def _given(self) -> dict[str, Any]:
        """Those that are given, but the tables themselves."""
        fields = (field.name for field in dataclasses.fields(TableOptions) if field.name != "table")
        return {name: getattr(self, name) for name in fields if getattr(self, name)}
