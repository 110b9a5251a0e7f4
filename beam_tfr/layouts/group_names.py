"""Finds names of groups, such as patients or videos, that random splits may separate.

An example is patient03 in A/patient03_1.jpg.
"""

import collections
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from beam_tfr.layouts.parsing import Layout, parse_layout
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_option

_WORDS = (
    "animal|case|clip|donor|film|lesion|movie|participant|patient|person|scene|sequence|series"
    "|session|slide|specimen|study|subj|subject|video|volunteer"
)
_GROUP = re.compile(rf"(?i)(?<![a-z])(?:{_WORDS})s?[-_ ]?[0-9]+")
_ENDINGS = "id|uid|name|no|nr|num|number|code|key|index"
_COLUMN = re.compile(rf"(?:{_WORDS})(?:instance)?(?:{_ENDINGS})?|(?:image)?group(?:id)?")
PATTERN = f"(?i)((?:{_WORDS})s?[-_ ]?[0-9]+)"  # for pandas


def is_named_like_groups(column: str) -> bool:
    """Whether the name of a column, such as `Patient ID`, suggests that it holds groups."""
    letters = re.sub(r"[^a-z]", "", column.lower())
    return _COLUMN.fullmatch(letters) is not None


def find_largest_group(values: Iterable[str]) -> tuple[str, int]:
    """Returns the most frequent value, and the number of times it occurs, or ("", 0).

    There are groups only if there are at least two values, one of which occurs at least twice.
    """
    numbers = collections.Counter(values)
    if len(numbers) < 2:
        return "", 0
    value, number = numbers.most_common(1)[0]
    return (value, number) if number > 1 else ("", 0)


def find_groups(keys: Collection[str]) -> dict[str, str]:
    """Returns key -> the name of its group, or an empty dict if less than half of keys have one."""
    groups = {}
    for key in keys:
        match = _GROUP.search(key)
        if match:
            groups[key] = match[0]
    return groups if 2 * len(groups) >= len(keys) else {}


def describe_groups(keys: Collection[str], layout: Layout) -> str:
    """Returns a message about groups in names that random splits may separate, or an empty string.

    Args:
        keys: keys of some images.
        layout: the layout of the keys, without `{group}`.
    """
    groups = find_groups(keys)
    group, number = find_largest_group(groups.values())
    if not number or _are_labels(groups, layout):
        return ""
    fix = "write the groups into a column of a `table=`, and name it in `group_column=`"
    suggested = _find_layout(groups, layout)
    if suggested:
        fix = f"{spell_option('layout', suggested)} keeps each group in one split"
    example = next(key for key, name in groups.items() if name == group)
    return (
        f"image names seem to contain groups: {number:,} of the first {len(keys):,} contain "
        f"{group}, such as {example}, and random splits may separate their images; {fix}"
    )


def _are_labels(groups: Mapping[str, str], layout: Layout) -> bool:
    """Whether the layout reads any name of a group as a class."""
    for key, group in groups.items():
        values = layout.parse_key(key) or {}
        if group in values.get("label", ""):
            return True
    return False


def _find_layout(groups: Mapping[str, str], layout: Layout) -> Layout | None:
    """Finds a layout that reads all groups, and reads classes as `layout` does; otherwise None."""
    for text in _list_layouts(layout.parts, groups):
        try:
            candidate = parse_layout(text)
        except UsageError:
            continue
        if all(_reads(candidate, key, group, layout) for key, group in groups.items()):
            return candidate
    return None


def _list_layouts(parts: Sequence[str], groups: Mapping[str, str]) -> Iterator[str]:
    """Yields layouts that are like the current layout, but also read a group."""
    for index, part in enumerate(parts):
        if part in ("*", "**"):
            before = parts[:index]
            yield "/".join([*before, "{group}", *(parts[index + 1 :] or [part])])
            for separator in sorted(_list_separators(groups)):
                yield "/".join([*before, f"{{group}}{separator}*", *parts[index + 1 :]])


def _list_separators(groups: Mapping[str, str]) -> set[str]:
    """Returns the characters that follow the groups, such as _."""
    return {key.partition(group)[2][:1] for key, group in groups.items()} - {"", "/"}


def _reads(candidate: Layout, key: str, group: str, layout: Layout) -> bool:
    """Whether a layout reads the group of a key, and otherwise agrees with the current layout."""
    values = candidate.parse_key(key)
    if values is None or values.pop("group", "") != group:
        return False
    return values == layout.parse_key(key)
