"""Describes JSON with rows in lists below keys, and the jq command that writes JSON Lines from it.

{"data": [{"image": "1.jpg", "label": "cat"}]}    {"train": [{"image": …}], "test": [{"image": …}]}
{"cat": ["1.jpg"], "dog": ["2.jpg"]}              {"image": ["1.jpg"], "label": ["cat"]}
{"data": {"rows": [{"image": "1.jpg"}]}}          {"train": {"images": [{"image": …}]}, "test": …}
{"train": [["1.jpg", 0, "cat"]], "test": …}       {"train": {"1.jpg": "cat"}, "test": …}
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from beam_tfr.layouts.split_names import are_splits
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.schema.spelling import quote_word, spell_option

_MOST_PARTS = 5  # that a message names
_PLAIN_KEY = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_IMAGE_COLUMN = re.compile(r"(?is)(?:.*_)?(?:image|img|file|filename|path)s?(?:_.*)?")
_LABEL_COLUMN = re.compile("(?i)(?:label|class|category)s?(?:_?names?)?")
_MOST_OUTER = 20  # keys of a file whose values are searched for lists
_ROLES = {"uri_column": "path", "label_column": "label", "split_column": "split"}
_AS_LINES = "write one object per row and line to a .jsonl file"
_OF_COCO = frozenset({"images", "annotations"})
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Values = Mapping[str, msgspec.Raw]


class _List(NamedTuple):
    """A list that is not empty.

    Attributes:
        length: number of members.
        first: the first member.
    """

    length: int
    first: Any


def describe_row_lists(content: _Values) -> str:
    """Says how to make rows from a JSON object; returns an empty string if there is no way.

    Args:
        content: key -> value.
    """
    if _may_be_coco(content):
        return ""
    parts = _find_parts(content)
    if parts:
        return _describe_parts(parts)
    lists = _find_lists(content)
    rows = {key: found.first for key, found in lists.items() if isinstance(found.first, dict)}
    if rows:
        return _describe_rows(rows, are_all=rows.keys() == content.keys())
    if lists and lists.keys() == content.keys():
        return _describe_columns(lists) or _describe_paths(lists) or _describe_row_lists(lists)
    return _describe_inner_objects(content) or _describe_inner_rows(content)


def _may_be_coco(content: _Values) -> bool:
    """Whether the file may be COCO, according to its keys and the first image or annotation."""
    if "images" not in content:
        objects = _find_list(content, "annotations")
        return objects is not None and _has_fields(objects.first, {"image_id"})
    if not {"annotations", "categories"}.isdisjoint(content):
        return True
    if _is_object(content["images"]):
        return False
    images = _find_list(content, "images")
    return images is None or _has_fields(images.first, {"id", "file_name"})


def _find_list(content: _Values, key: str) -> _List | None:
    """Returns the list under a key; None if there is no list, or if the list is empty."""
    return _find_lists({key: content[key]}).get(key) if key in content else None


def _is_object(value: msgspec.Raw) -> bool:
    return bytes(memoryview(value)[:1]) == b"{"


def _has_fields(member: Any, fields: Collection[str]) -> bool:
    """Whether a list member is an object with at least one of the fields."""
    return isinstance(member, dict) and any(field in member for field in fields)


def _find_parts(content: _Values) -> list[str]:
    """Returns the keys of values that are COCO files by themselves, for example one per split."""
    parts = list[str]()
    for key, value in content.items():
        try:
            members = _OBJECT.decode(value)
        except msgspec.ValidationError:
            continue
        if _OF_COCO.issubset(members):
            parts.append(key)
    return parts


def _find_lists(content: _Values) -> dict[str, _List]:
    """Returns the lists among the values, without empty lists."""
    lists = dict[str, _List]()
    for key, value in content.items():
        try:
            members = _LIST.decode(value)
        except msgspec.ValidationError:
            continue
        if members:
            lists[key] = _List(len(members), msgspec.json.decode(members[0]))
    return lists


def _describe_parts(parts: Iterable[str]) -> str:
    """Returns the message about several COCO files in one file.

    Args:
        parts: the keys of the COCO files.
    """
    keys = [*parts]
    plain = [key for key in keys if _PLAIN_KEY.fullmatch(key)][:_MOST_PARTS]
    commands = [_write_command(_access(key), f"only-{key}.json", flags="") for key in plain]
    others = f"; the same for {len(keys) - len(plain):,} more" if len(plain) < len(keys) else ""
    return f"holds several COCO files; write each to its own file: {', '.join(commands)}{others}"


def _describe_rows(rows: Mapping[str, Mapping[str, Any]], *, are_all: bool, outer: str = "") -> str:
    """Returns the message about lists of objects.

    Args:
        rows: key -> the first object in its list.
        are_all: whether the object that holds these lists holds nothing else.
        outer: the key of the object with these lists; an empty string if the object is the file.
    """
    with_images = {key: row for key, row in rows.items() if _find_image_column(row)}
    if not with_images and len(rows) == 1:
        return _describe_objects(*rows)
    chosen = with_images or rows
    options = _suggest_options(next(iter(chosen.values())))
    if len(chosen) == 1:
        (key,) = chosen
        begin = _access(outer) if outer else ""
        return f"has rows in {key!r}; {_write_rows(f'{begin}{_access(key)}[]', options)}"
    begin = f"{_access(outer)} | " if outer else ""
    begin += "" if are_all and chosen.keys() == rows.keys() else f"{_select(chosen)} | "
    column = _name_keys(chosen, options)
    code = f"{begin}to_entries[] | .key as $key | .value[] | {_add_key(column)}"
    return f"has rows in {join_names([*chosen])}; {_write_rows(code, options)}"


def _name_keys(rows: Mapping[str, Mapping[str, Any]], options: dict[str, str]) -> str:
    """Returns the name of a column for the keys of lists of rows, and adds an option that names it.

    Args:
        rows: key -> the first row in its list.
        options: options for the rows.
    """
    role = _role_of_keys(rows, options)
    column = "key" if any(role in row for row in rows.values()) else role
    if role != "key":
        options[f"{role}_column"] = column
    return column


def _add_key(column: str) -> str:
    """Returns the jq code that adds `$key` to a row, as a column that no row has yet."""
    taken = f'error("a row has {column} already")'
    return f'if has("{column}") then {taken} else . + {{{column}: $key}} end'


def _role_of_keys(keys: Collection[str], options: Mapping[str, str]) -> str:
    """Returns what the keys of lists of rows stand for: split, label, or neither ("key").

    Args:
        keys: the keys.
        options: options for the rows.
    """
    if are_splits({*keys}):
        return "split"
    return "key" if "label_column" in options else "label"


def _describe_objects(key: str) -> str:
    """Returns the message about a list of objects that name no image.

    Args:
        key: the key of the list.
    """
    rows = _write_command(f"{_access(key)}[]", "a.jsonl")
    name = '(input_filename | split("/")[-1] | sub("[.]json$"; ""))'
    code = quote_word(f"{{image: {name}, objects: {_access(key)}}}", "FILTER")
    return (
        f"has objects in {key!r}, which name no image; if these are rows of a table, {rows} writes "
        f"them; if each file is about the image of the same name, jq -c {code} *.json > "
        "a.jsonl writes a row for each image, for `uri_column=image`"
    )


def _describe_columns(lists: Mapping[str, _List]) -> str:
    """Returns the message about columns that are stored as lists, or an empty string.

    Args:
        lists: key -> a list, for all keys of the file.
    """
    row = {key: found.first for key, found in lists.items()}
    column = _find_image_column(row)
    if len({found.length for found in lists.values()}) > 1 or not column:
        return ""
    are_all_images = all(isinstance(cell, str) and has_image_name(cell) for cell in row.values())
    if are_all_images and not _IMAGE_COLUMN.fullmatch(column):
        return ""
    code = f". as $all | range({_access(column)} | length) as $i | $all | map_values(.[$i])"
    return f"has a list for each column; {_write_rows(code, _suggest_options(row))}"


def _describe_paths(lists: Mapping[str, _List]) -> str:
    """Returns the message about lists of image names by class or split, or an empty string.

    Args:
        lists: key -> a list, for all keys of the file.
    """
    if not all(isinstance(found.first, str) for found in lists.values()):
        return ""
    role = "split" if are_splits({*lists}) else "label"
    code = f"to_entries[] | .key as $key | .value[] | {{path: ., {role}: $key}}"
    options = {"uri_column": "path", f"{role}_column": role}
    return f"has lists of names below {join_names([*lists])}; {_write_rows(code, options)}"


def _describe_row_lists(lists: Mapping[str, _List]) -> str:
    """Returns the message about lists of rows by split, if each row is a list, or an empty string.

    An example is split_zhou_OxfordPets.json of CoOp, whose rows are ["1.jpg", 0, "cat"].

    Args:
        lists: key -> a list, for all keys of the file.
    """
    rows = [found.first for found in lists.values()]
    are_rows = all(isinstance(row, list) and len(row) > 1 and _is_image(row[0]) for row in rows)
    if not are_rows or not are_splits({*lists}):
        return ""
    code = "to_entries[] | .key as $split | .value[] | {path: .[0], label: .[-1], split: $split}"
    return f"has a list for each row, by split; {_write_rows(code, _ROLES)}"


def _is_image(value: Any) -> bool:
    return isinstance(value, str) and has_image_name(value)


def _describe_inner_objects(content: _Values) -> str:
    """Returns the message about rows by id or image names by split and class, or an empty string.

    Args:
        content: key -> value.
    """
    values = [*content.values()]
    if not values or not all(map(_is_object, values)):
        return ""
    row = msgspec.json.decode(values[0])
    if _find_image_column(row):
        code = "to_entries[] | {id: .key} + .value"
        return f"has rows by id; {_write_rows(code, _suggest_options(row))}"
    if not are_splits({*content}):
        return ""
    begin = "to_entries[] | .key as $split | .value | to_entries[] | "
    first_name, first_class = next(iter(row.items()), ("", ""))
    if _is_image(first_name) and isinstance(first_class, str | int):
        code = f"{begin}{{path: .key, label: .value, split: $split}}"
        return f"has names of images as keys, by split; {_write_rows(code, _ROLES)}"
    lists = _find_lists(_OBJECT.decode(values[0]))
    if not lists or not all(isinstance(found.first, str) for found in lists.values()):
        return ""
    code = f"{begin}.key as $class | .value[] | {{path: ., split: $split, label: $class}}"
    return f"has lists of names by split and class; {_write_rows(code, _ROLES)}"


def _describe_inner_rows(content: _Values) -> str:
    """Returns the message about rows in lists that are two keys deep, or an empty string.

    Args:
        content: key -> value.
    """
    if len(content) > _MOST_OUTER:
        return ""
    rows_of = {key: _find_inner_rows(value) for key, value in content.items()}
    rows_of = {key: rows for key, rows in rows_of.items() if rows}
    if len(rows_of) == 1:
        ((outer, rows),) = rows_of.items()
        return _describe_rows(rows, are_all=False, outer=outer)
    shared = set[str].intersection(*map(set, rows_of.values())) if rows_of else set()
    if not shared:
        return ""
    inner = min(shared)
    rows = {key: rows[inner] for key, rows in rows_of.items()}
    options = _suggest_options(next(iter(rows.values())))
    column = _name_keys(rows, options)
    begin = "" if rows_of.keys() == content.keys() else f"{_select(rows_of)} | "
    code = f"{begin}to_entries[] | .key as $key | .value{_access(inner)}[] | {_add_key(column)}"
    return f"has rows in {inner!r} below {join_names([*rows_of])}; {_write_rows(code, options)}"


def _find_inner_rows(value: msgspec.Raw) -> dict[str, dict[str, Any]]:
    """Returns key -> the first row, for each list of an object whose first row names an image."""
    try:
        lists = _find_lists(_OBJECT.decode(value))
    except msgspec.ValidationError:
        return {}
    first_rows = {key: found.first for key, found in lists.items()}
    return {
        key: row
        for key, row in first_rows.items()
        if isinstance(row, dict) and _find_image_column(row)
    }


def _find_image_column(row: Mapping[str, Any]) -> str:
    """Returns the first column that holds an image name, or is named for images, or ""."""
    texts = {key: cell for key, cell in row.items() if isinstance(cell, str)}
    for key, cell in texts.items():
        if has_image_name(cell):
            return key
    return next(filter(_IMAGE_COLUMN.fullmatch, texts), "")


def _suggest_options(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the options that name the columns of images and classes.

    Args:
        row: the first row.
    """
    options = dict[str, str]()
    column = _find_image_column(row)
    if column:
        options["uri_column"] = column
    label = next(filter(_LABEL_COLUMN.fullmatch, row), "")
    if label and isinstance(row[label], (str, int)):
        options["label_column"] = label
    return options


def _write_rows(code: str, options: Mapping[str, str]) -> str:
    """Returns the command that writes rows, and the options for these rows.

    Args:
        code: the filter of jq.
        options: option -> value.
    """
    given = " and ".join(spell_option(name, value) for name, value in options.items())
    return f"{_AS_LINES}: {_write_command(code, 'a.jsonl')}{given and f', and give {given}'}"


def _write_command(code: str, output: str, flags: str = " -c") -> str:
    return f"jq{flags} {quote_word(code, 'FILTER')} a.json > {output}"


def _access(key: str) -> str:
    """Returns the jq filter for the value of a key."""
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f".[{json.dumps(key)}]"


def _select(keys: Iterable[str]) -> str:
    """Returns the jq filter for an object with only some of its keys."""
    return f"{{{', '.join(json.dumps(key) for key in keys)}}}"
