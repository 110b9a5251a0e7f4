"""Warns about cells that seem to name several classes, but are each read as one class.

Such cells are lists as programs write them in CSV, and classes joined by a separator.
"""

import collections
import contextlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from beam_tfr.features.cells import NUMBER, parse_list
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.base import table_error
from beam_tfr.tables.joining import FirstRows, NumberedRow, is_zero
from beam_tfr.tables.roles import split_labels

_SEPARATORS = ("|", ";", ",", "/", "+", " ")
_MOST_NAMES = 1_000  # different names that are compared
_MOST_CHARACTERS = 1_000  # of a name that is compared
_MOST_PARTS = 20_000  # of all names that are compared, which limits the time
_LIKE_LIST = re.compile(r"\s*(?:\[.*\]|\(\s*['\"].*\)|\{\s*['\"].*\})\s*", re.DOTALL)

# Names of columns with 0 if an image lacks the class of the row, as in Open Images.
_PRESENCE = ("confidence", "presence", "present", "ispresent")
# Fields of objects with their class; the first one present counts.
_CLASS_FIELDS = ("name", "class", "label", "category", "text", "displayName")
_FLAGS = frozenset({"0", "1", "0.0", "1.0", "True", "False"})

# Number of words for a class with the four numbers of a box, and perhaps a confidence.
_BOX_WORDS = (5, 6)

# Separators of whole numbers that are not decimal signs or parts of dates.
_BETWEEN_NUMBERS = ("|", ";", " ")

# Separators that are rare within the names of classes.
_RARE_SEPARATORS = ("|", ";", ",")

# Separators that names of classes hardly ever contain.
_SURE_SEPARATORS = ("|", ";")

# This many strings may count as mixed if all share a part; in more strings, most parts must move.
_LEAST_SHARING = 3
_MOST_SHARING = 20

_PartsOf = dict[str, list[str]]  # text -> its parts


def find_presence_column(columns: Iterable[str]) -> str:
    """Returns the column that is 0 if an image lacks the row's class, or an empty string."""
    numbers = collections.Counter(columns)
    by_name = {
        re.sub("[^a-z]", "", column.lower()): column
        for column, number in numbers.items()
        if number == 1
    }
    return next((by_name[name] for name in _PRESENCE if name in by_name), "")


def warn_of_rows_of_classes(options: ConvertOptions, first: FirstRows) -> Iterator[str]:
    """Yields warnings about images whose rows have different classes, and about absent classes.

    Args:
        options: the options of the conversion, which does not join rows.
        first: the first rows, including the columns of images and classes.
    """
    groups = first.group(options.uri_column)
    several = [group for group in groups if _have_different(group, options.label_column)]
    if several:
        image = several[0][0].cells[options.uri_column]
        yield (
            f"{len(several):,} of the first {len(groups):,} images have rows with different "
            f"classes, such as {image!r:.100}, and become rejects: if an image has all of these "
            "classes, `label_separator='|'` joins its rows; if files in several folders have this "
            "name, add the folder of each to its path"
        )
    presence = find_presence_column(first.columns)
    if presence and any(is_zero(cell) for _, cell in first.column(presence)):
        yield (
            f"column {presence!r} is 0 in some rows, but the classes of these rows count: if the "
            "images lack these classes, `label_separator='|'` leaves them out"
        )


def _have_different(group: Iterable[NumberedRow], column: str) -> bool:
    """Whether rows differ in a column."""
    return len({repr(row.cells[column]) for row in group}) > 1


def check_classes(table: str, options: ConvertOptions, cells: Iterable[Any]) -> None:
    """Checks that cells hold classes of images, rather than objects or a number for each class.

    Args:
        table: the first table.
        options: the options of the conversion.
        cells: the first cells of the column with the classes.

    Raises:
        UsageError: the cells hold something else.
    """
    column = options.label_column
    lists = [*_split_cells(cells, options.label_separator)]
    members = [member for names in lists for member in names]
    if members and all(isinstance(member, dict) for member in members):
        if all(isinstance(value, int | float) for value in members[0].values()):
            raise table_error(
                table,
                f"column {column!r} holds a number for each class, such as {members[0]!r:.100}: "
                "write the names of the classes that apply instead",
            )
        field = _find_class_field(members[0])
        raise table_error(
            table,
            f"column {column!r} holds objects, such as {members[0]!r:.100}: name the field with "
            f"the class, such as {spell_option('label_column', f'{column}.{field}')}",
        )
    if members and all(map(_is_list_of_objects, members)):
        raise table_error(
            table,
            f"column {column!r} holds lists of objects as text, such as {members[0]!r:.100}, "
            "instead of classes: extract the classes, or export the boxes as COCO JSON, which can "
            "be a `table=`",
        )
    kind = _find_kind_of_numbers(lists)
    if kind:
        raise table_error(
            table,
            f"column {column!r} has {len(lists[0])} numbers in each row, such as "
            f"{lists[0]!r:.100}, instead of the names or ids of its classes: write these, or store "
            f"the numbers with {spell_option('feature_columns', f'{column}:{kind}[]')}",
        )


def _split_cells(cells: Iterable[Any], separator: str) -> Iterator[list[Any]]:
    """Yields the classes in each cell that is not empty."""
    for cell in cells:
        with contextlib.suppress(ValueError):  # reading the row raises the error
            if cell:
                yield split_labels(cell, separator, in_text=False)


def _find_class_field(members: Mapping[str, Any]) -> str:
    """Returns the field that may hold the class of an object."""
    for name in (*_CLASS_FIELDS, *members):
        value = members.get(name)
        if isinstance(value, str | list):
            return name
    return next(iter(members), "name")


def _find_kind_of_numbers(lists: Sequence[Sequence[Any]]) -> str:
    """Returns the type, int64 or float, of lists with a number per class, or an empty string.

    All lists must have the same length, and booleans, fractions or repeats must show that the
    numbers are not ids. The type is int64 if all numbers are 0 or 1.
    """
    sizes = {len(members) for members in lists}
    if len(sizes) != 1 or min(sizes) < 2:
        return ""
    texts = [str(member) for members in lists for member in members]
    if _FLAGS.issuperset(texts):
        return "int64" if _are_truth_values(lists) else ""
    if not all(map(NUMBER.fullmatch, texts)):
        return ""
    return "float" if any(map(_is_share, texts)) else ""


def _are_truth_values(lists: Sequence[Sequence[Any]]) -> bool:
    """Whether lists of 0 and 1 say which classes apply, instead of being lists of ids."""
    return _have_repeats(lists) or isinstance(lists[0][0], bool)


def _have_repeats(lists: Iterable[Sequence[Any]]) -> bool:
    """Whether any list has a repeated member."""
    return any(len({*members}) < len(members) for members in lists)


def _is_share(number: str) -> bool:
    return "." in number and not float(number).is_integer()


def warn_of_several_classes(options: ConvertOptions, names: Iterable[Any]) -> Iterator[str]:
    """Yields a warning about classes that each seem to be several classes.

    Args:
        options: the options of the conversion.
        names: the classes of the first rows, as they are read.
    """
    texts = [*dict.fromkeys(name for name in names if isinstance(name, str))]
    lists = [*filter(_LIKE_LIST.fullmatch, texts)]
    if lists:
        yield _describe_list(options, min(lists))
        return
    if texts and all(map(_looks_like_boxes, texts)):
        yield (
            f"column {options.label_column!r}: {texts[0]!r:.100} is one class, but looks like a "
            "class with the four numbers of a box, once or several times: write a row for each "
            f"box, with the columns {options.uri_column},class,xmin,ymin,xmax,ymax"
        )
        return
    if options.label_separator or options.classes:
        return
    for separator in _SEPARATORS:
        parts_of = _split_names(texts, separator)
        compound = _find_compound(parts_of)
        reason = "its parts are also classes of other rows"
        if not compound:
            compound = _find_mixed(parts_of, separator)
            reason = "classes of other rows have some of its parts in other places"
        if not compound and separator in _SURE_SEPARATORS:
            compound = _find_partly_known(parts_of)
            reason = "one of its parts is also a class of other rows"
        if compound:
            yield (
                f"column {options.label_column!r}: {compound!r:.100} is one class, but {reason}: "
                f"{spell_option('label_separator', separator)} splits such values into several"
            )
            return


def _looks_like_boxes(text: str) -> bool:
    """Whether a string is one or more classes, each with the numbers of a box."""
    words = text.split()
    for number in _BOX_WORDS:
        numbers = [word for place, word in enumerate(words) if place % number]
        if words and len(words) % number == 0 and all(map(NUMBER.fullmatch, numbers)):
            return True
    return False


def _describe_list(options: ConvertOptions, text: str) -> str:
    """Returns the message about a class that is written like a list."""
    start = f"column {options.label_column!r}: {text!r:.100} looks like a list, but is one class"
    if not options.label_separator and _is_list(text):
        return f"{start}: `label_separator='|'` reads lists as several classes"
    return f'{start}: write lists as JSON, such as ["cat", "dog"], with `label_separator=\'|\'`'


def _is_list_of_objects(text: Any) -> bool:
    """Whether a string is a list of objects, which Label Studio writes for boxes in CSV."""
    if not isinstance(text, str) or not text.startswith("[{"):
        return False
    try:
        members = parse_list(text) or []
    except ValueError:
        return False
    return any(isinstance(member, dict) for member in members)


def _is_list(text: str) -> bool:
    try:
        return parse_list(text) is not None
    except ValueError:
        return False


def _split_names(texts: Sequence[str], separator: str) -> _PartsOf:
    """Returns the parts of the first short strings, up to a total number of parts."""
    parts_of: _PartsOf = {}
    num_parts = 0
    for text in texts[:_MOST_NAMES]:
        if len(text) <= _MOST_CHARACTERS:
            parts = [part.strip() for part in text.split(separator)]
            parts_of[text] = [*filter(None, parts)]
            num_parts += len(parts)
        if num_parts > _MOST_PARTS:
            break
    return parts_of


def _find_compound(parts_of: _PartsOf) -> str:
    """Returns the first string whose parts all occur in other, shorter strings, or an empty string.

    An example is `Mass|Nodule` if there are `Mass` and `Nodule`.
    """
    bit_of = {part: 1 << number for number, part in enumerate(_list_parts(parts_of))}
    sets = {text: sum({bit_of[part] for part in parts}) for text, parts in parts_of.items()}
    all_sets = {*sets.values()}
    for text, parts in sets.items():
        if parts.bit_count() > 1 and _is_union(parts, all_sets):
            return text
    return ""


def _find_partly_known(parts_of: _PartsOf) -> str:
    """Returns the first string with several parts, one of which is also a string of its own.

    An example is `Mass|Nodule` if there is `Mass`, but no `Nodule`.
    """
    single = {parts[0] for parts in parts_of.values() if len(parts) == 1}
    compounds = [text for text, parts in parts_of.items() if len(parts) > 1]
    return next((text for text in compounds if not single.isdisjoint(parts_of[text])), "")


def _list_parts(parts_of: _PartsOf) -> list[str]:
    """Lists all parts, without repeats."""
    return [*dict.fromkeys(itertools.chain.from_iterable(parts_of.values()))]


def _find_mixed(parts_of: _PartsOf, separator: str) -> str:
    """Returns the first string with several parts if strings mix parts, or an empty string.

    Examples are `haze primary`, `clear primary` and `clear primary water`, or `16 0` and `7 1 2`.
    By contrast, names share words only at one end, as in `brown bear` and `polar bear`, and
    sentences repeat some words.
    """
    compounds = [text for text, parts in parts_of.items() if len(parts) > 1]
    if not compounds or _have_repeats(parts_of.values()):
        return ""
    if separator in _BETWEEN_NUMBERS and _are_numbers(parts_of.values()):
        return compounds[0]
    moving = _find_moving(parts_of.values())
    if _mix_parts(parts_of.values(), moving, separator) or _share_parts(parts_of.values(), moving):
        return next(text for text in compounds if not moving.isdisjoint(parts_of[text]))
    return ""


def _mix_parts(lists: Iterable[Sequence[str]], moving: Set[str], separator: str) -> bool:
    """Whether enough parts of strings move, or occur again if the separator is rare in names."""
    number_of = collections.Counter(itertools.chain.from_iterable(lists))
    num_parts = number_of.total()
    num_moving = sum(number_of[part] for part in moving)
    if 2 * num_moving > num_parts:
        return True
    if separator in _RARE_SEPARATORS:
        num_repeated = sum(number for number in number_of.values() if number > 1)
        return bool(moving) and 2 * num_repeated > num_parts
    return len(moving) > 1 and 2 * num_moving == num_parts


def _share_parts(lists: Collection[Sequence[str]], moving: Set[str]) -> bool:
    """Whether all strings share a part that moves, and one string includes all parts of another.

    An example is `agriculture clear primary`, which includes `clear primary`, next to `haze primary
    water`.
    """
    groups = {*map(frozenset, lists)}
    if not _LEAST_SHARING <= len(groups) <= _MOST_SHARING:
        return False
    if frozenset.intersection(*groups).isdisjoint(moving):
        return False
    return any(len(part) > 1 and part < whole for part in groups for whole in groups)


def _find_moving(lists: Iterable[Sequence[str]]) -> set[str]:
    """Returns the parts that have several positions in strings, counted from either end."""
    from_start = collections.defaultdict[str, set[int]](set)
    from_end = collections.defaultdict[str, set[int]](set)
    for parts in lists:
        for place, part in enumerate(parts):
            from_start[part].add(place)
            from_end[part].add(len(parts) - place)
    return {part for part in from_start if len(from_start[part]) > 1 and len(from_end[part]) > 1}


def _are_numbers(lists: Iterable[Sequence[str]]) -> bool:
    """Whether all parts are whole numbers, and some strings have more parts than others."""
    sizes = set[int]()
    for parts in lists:
        sizes.add(len(parts))
        if not all(part.isascii() and part.isdigit() for part in parts):
            return False
    return len(sizes) > 1


def _is_union(parts: int, others: Iterable[int]) -> bool:
    """Whether the subsets of a set among other sets together contain all of its members.

    Sets are numbers, with a bit for each member.
    """
    together = 0
    for other in others:
        if other != parts and other & parts == other:
            together |= other
    return together == parts
