"""Merges table rows with the same key: equal rows become one image, different rows a reject."""

import collections
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.records.examples import parse_example
from beam_tfr.records.repeats import (
    KeyPosition,
    RepeatedKeys,
    find_repeated_keys,
    hash_key,
    number_keys,
)
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.encoded_ref import GROUP_MARK, to_bytes
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables import roles
from beam_tfr.tables.base import name_row
from beam_tfr.tables.formats import format_of
from beam_tfr.tables.paths import folder_of
from beam_tfr.tables.rows import Tables

MOST_REPEATED = 100_000  # keys, held by each worker
REPEATED_NOTE = (
    "keys that several rows have: {number:,}; equal rows are converted once, and rows that differ "
    "become one reject"
)
_SOURCE_ID = "image/source_id"  # in annotations
_LISTED = ("bytes", "int64", "float")  # types of columns whose values may be lists
_MOST_CHARACTERS = 60  # of a value
_MOST_SHOWN = 3  # values that contradict each other


class RowKeys:
    """The keys of the rows of tables, in 24 bytes of memory each."""

    def __init__(self) -> None:
        self._hashes = list[bytearray]()  # hashes of the keys of each table

    def note_rows(self, refs: Iterable[ImageRef]) -> Iterator[ImageRef]:
        """Yields the references of the next table, and records their keys."""
        hashes = bytearray()
        self._hashes.append(hashes)
        for ref in refs:
            hashes += hash_key(to_bytes(ref.key))
            yield ref

    def find_repeated(self) -> RepeatedKeys:
        """Returns the keys that several rows have."""
        numbered = [number_keys(table, hashes, 1) for table, hashes in enumerate(self._hashes)]
        return find_repeated_keys(b"".join(keys.tobytes() for keys in numbered))


def merge_repeated(
    tables: Tables, refs: Iterable[ImageRef], repeated: RepeatedKeys
) -> Iterator[ImageRef]:
    """Yields references; merges references with the same key.

    Args:
        tables: the tables of the rows.
        refs: the references of all rows.
        repeated: the keys that several rows have.
    """
    rows_of = collections.defaultdict[bytes, list[ImageRef]](list)
    for ref in refs:
        key = hash_key(to_bytes(ref.key))
        if key in repeated:
            rows_of[key].append(ref)
        else:
            yield ref
    for key, rows in rows_of.items():
        yield merge_rows(tables, rows, repeated[key])


def check_repeats(tables: Tables, repeated: RepeatedKeys) -> None:
    """Checks that keys may have several rows.

    Raises:
        DataError: repeats are not allowed, since keys are row numbers, or rows may hold one box
            each, or too many keys are repeated.
    """
    if not repeated:
        return
    if tables.key_column and not tables.box_cure and len(repeated) <= MOST_REPEATED:
        return
    (earlier, before), (table, row) = min(repeated.values(), key=_position_of_second)
    column = tables.key_column or "number"
    what = "file" if tables.options.uri_column else "key"
    others = ""
    if len(repeated) > 1:
        others = f"; {len(repeated):,} {what}s have several rows"
    cure = tables.box_cure or "remove the others"
    if not tables.box_cure and _may_have_several_classes(tables):
        cure += ", or, if each row names a class of its file, `label_separator='|'` joins them"
    raise DataError(
        f"its {column} is that of row {before} of {tables.files[earlier]}{others}. Each {what} may "
        f"have only one row: {cure}",
        option="table",
        value=name_row(tables.files[table], row),
    )


def _may_have_several_classes(tables: Tables) -> bool:
    """Whether an option would join the rows of an image if each row names one class."""
    options = tables.options
    return bool(options.uri_column and options.label_column) and not tables.multi_label


def _position_of_second(positions: tuple[KeyPosition, KeyPosition]) -> KeyPosition:
    return positions[1]


def merge_rows(
    tables: Tables, refs: Iterable[ImageRef], positions: tuple[KeyPosition, KeyPosition]
) -> ImageRef:
    """Returns the reference of an image that several rows name, or a reject if the rows differ.

    Args:
        tables: the tables of the rows.
        refs: the references of the rows, in any order.
        positions: the positions of the first two rows.
    """
    ordered = sorted(refs, key=ImageRef.encode)
    first = ordered[0]
    if ordered[-1] == first:
        return first
    unusable = [ref for ref in ordered if ref.reason]
    if unusable:
        return unusable[0]
    places = dict.fromkeys(_name_place(tables, place) for place in positions)
    detail = (
        f"{len(ordered)} rows have this key, such as in {' and '.join(places)}, but differ: "
        f"{_describe_contradiction(tables, ordered)}"
    )
    return first._replace(reason="bad-value", detail=detail)


def _name_place(tables: Tables, position: KeyPosition) -> str:
    """Names a row in messages by the path of its table, relative to the folder of all tables."""
    table, row = position
    path = tables.files[table]
    name = path[len(tables.folder) :]
    has_one_row = tables.joins_rows or format_of(path).of_one_image
    return name if has_one_row else name_row(name, row)


def _describe_contradiction(tables: Tables, refs: Sequence[ImageRef]) -> str:
    """Says how the rows of an image contradict each other, and what to do."""
    splits = sorted({ref.split for ref in refs})
    if len(splits) > 1:
        return _describe_splits(tables, splits)
    columns = [parse_example(ref.columns or b"") for ref in refs]
    ids = _list_values(columns, _SOURCE_ID)
    if len(ids) > 1:
        return (
            f"the image has the ids {_join(ids)}; join their objects under one id, or remove one "
            "of them"
        )
    labels = sorted({ref.labels for ref in refs})
    if len(labels) > 1:
        classes = [", ".join(members) or "none" for members in labels]
        difference = f"the image has the classes {_join(classes)}"
        return f"{difference}; {_cure_classes(tables)}"
    differing = _list_differing(columns)
    difference = "their values are not equal"
    if differing:
        difference = f"{differing[0]} is {_join(_list_values(columns, differing[0]))}"
    have_lists = any(len(values.get(name, ())) > 1 for values in columns for name in differing)
    return f"{difference}; {_cure_values(tables, differing, have_lists=have_lists)}"


def _describe_splits(tables: Tables, splits: Sequence[str]) -> str:
    """Says which splits or groups an image is in, and what to do."""
    cure = "remove it from all but one"
    in_several_folders = len({*map(folder_of, tables.files)}) > 1
    if in_several_folders and isinstance(tables.split_role, roles.PlaceRole):
        cure += ", or, if these are files in several folders, give their parent as `image_root=`"
    noun = "groups" if tables.stratify else "splits"
    names = [split.removeprefix(GROUP_MARK) for split in splits]
    return f"the image is in the {noun} {_join(names)}; {cure}"


def _cure_classes(tables: Tables) -> str:
    """Says what to do about rows of an image with different classes."""
    if not tables.joins_rows and _may_have_several_classes(tables):
        return (
            "if it has all of these, `label_separator='|'` joins the rows of an image; if these "
            "are files in several folders, add the folder of each to its path"
        )
    return _cure_values(tables, ())


def _cure_values(tables: Tables, differing: Sequence[str], *, have_lists: bool = False) -> str:
    """Says what to do about rows of an image that differ in some columns, such as captions.

    Args:
        tables: the tables of the rows.
        differing: the columns.
        have_lists: whether a cell in one of these columns has several values.
    """
    if tables.joins_rows:
        return "name a file in the same way in all of its rows, and keep these in one table"
    kinds = {kind.name: kind.text.removesuffix("[]") for kind in tables.features if kind.is_plain}
    lists = [f"{name}:{kinds[name]}[]" for name in differing if kinds.get(name) in _LISTED]
    if not lists or len(lists) < len(differing):
        return "keep one of them"
    if have_lists:
        return "keep one of them, or write one row with all values in its list"
    options = tables.options
    keys = json.dumps(
        [*filter(None, [options.uri_column or options.key_column, options.label_column])]
    )
    return (
        "keep one of them, or write all values as a list, as for captions; with pandas: "
        f"table.groupby({keys})[{json.dumps(differing)}].agg(list).reset_index()"
        ".to_json('lists.jsonl', orient='records', lines=True), "
        f"and give {spell_option('feature_columns', ','.join(lists))}"
    )


def _list_differing(columns: Sequence[Mapping[str, Sequence[Any]]]) -> list[str]:
    """Lists the columns in which rows of an image contradict each other.

    Args:
        columns: for each row, column -> its values.
    """
    names = sorted(set[str]().union(*columns))
    return [name for name in names if len(_list_values(columns, name)) > 1]


def _list_values(columns: Sequence[Mapping[str, Sequence[Any]]], name: str) -> list[str]:
    """Lists the different values of a column, for messages."""
    texts = dict[str, None]()
    for values in columns:
        shown = [
            value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            for value in values.get(name, ())
        ]
        texts[", ".join(shown)[:_MOST_CHARACTERS]] = None
    return [*texts]


def _join(texts: Sequence[str]) -> str:
    return join_texts(texts, _MOST_SHOWN, " and ")
