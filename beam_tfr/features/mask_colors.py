"""What is said of colored masks, and the brackets that give their colors values."""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

_NAMED_COLORS = 8  # that are named beside their number
_MOST_VALUES = 64  # colors that are listed with values; more are hardly classes
# Of the detail of a reject: the brackets that give each color of its mask a value.
_CURE = re.compile(r"its (?P<key>\w+) has [^\[]*: \[(?P<values>#[0-9a-f]{6}=[^\]]*)\]")


def describe_colors(colors: Collection[int], rule: str) -> str:
    """What is wrong with a file of several channels: its colors, and how to give them values.

    Args:
        colors: 0xRRGGBB each.
        rule: what it must be.
    """
    noun = "color" if len(colors) == 1 else "colors"
    start = f"has {len(colors)} {noun} ({_name_colors(colors)}); {rule}"
    return f"{start}: give colors values in its brackets{_spell_cure(_number_colors(colors, {}))}"


def describe_unvalued(colors: Collection[int], values: Mapping[int, int]) -> str:
    """What is wrong with a file that has colors without a value, and how to give all one.

    Args:
        colors: those without one.
        values: color -> value, of the others.
    """
    cure = _spell_cure(_number_colors(colors, values))
    return f"has colors without a value: {_name_colors(colors)}; give all{cure}"


def describe_all_colors(details: Iterable[str]) -> Iterator[str]:
    """Yields the brackets that give the colors of all masks of some rejects values, if few.

    Those of a reject only have the colors of its own mask.

    Args:
        details: of rejects, also of other kinds.
    """
    texts_of = dict[str, dict[str, None]]()
    for detail in details:
        cure = _CURE.match(detail)
        if cure:
            texts_of.setdefault(cure["key"], {})[cure["values"]] = None
    for key, texts in texts_of.items():
        values = _merge_values([_parse_values(text) for text in texts])
        if len(values) > _MOST_VALUES:
            yield (
                f"the masks of {key} have {len(values):,} different colors, which are hardly all "
                "classes: if their channels hold ids of classes and objects, as in ADE20K (red // "
                "10 * 256 + green, and blue), write gray masks with the ids of classes alone"
            )
            continue
        brackets = _spell_values(values)
        yield f"the brackets of {key} that give all of these colors a value: {brackets}"


def _merge_values(all_values: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Color -> value, of all colors; those which have the same value everywhere keep it."""
    given, *others = all_values
    kept = {*given.items()}
    for values in others:
        kept &= values.items()
    colors = {*given}.union(*others)
    return _number_colors(colors, dict(kept))


def _number_colors(colors: Iterable[int], values: Mapping[int, int]) -> dict[int, int]:
    """Color -> value: those that have one keep it, others get the next that is free."""
    numbered = dict(values)
    taken_values = {*values.values()}
    free_values = (value for value in itertools.count() if value not in taken_values)
    for color in sorted({*colors} - values.keys()):
        numbered[color] = next(free_values)
    return numbered


def _parse_values(text: str) -> dict[int, int]:
    pairs = [part.split("=") for part in text.split(",")]
    return {int(color.removeprefix("#"), 16): int(value) for color, value in pairs}


def _spell_cure(values: Mapping[int, int]) -> str:
    """What follows `give`: the brackets, or a few of their parts if there are many."""
    if len(values) <= _MOST_VALUES:
        return f", for this one: {_spell_values(values)}"
    example = dict(itertools.islice(values.items(), 3))
    return f", such as {_spell_values(example)}"


def _spell_values(values: Mapping[int, int]) -> str:
    ordered = sorted(values.items(), key=lambda item: (item[1], item[0]))
    return f"[{','.join(f'#{color:06x}={value}' for color, value in ordered)}]"


def _name_colors(colors: Iterable[int]) -> str:
    ordered = sorted(colors)
    names = [f"#{color:06x}" for color in ordered[:_NAMED_COLORS]]
    more = ", …" if len(ordered) > _NAMED_COLORS else ""
    return ", ".join(names) + more
