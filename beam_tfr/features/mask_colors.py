"""Describes colored masks in messages, and the brackets that map their colors to values."""

import collections
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

_NAMED_COLORS = 8  # colors to list in messages, along with their number
_MOST_VALUES = 64  # colors to list with values; more are probably not classes
_NOISE_SHARE = 0.001  # largest fraction of a mask's pixels with one color of noise
_MAIN_SHARE = 0.99  # smallest fraction of a mask's pixels with its other colors
_LEAST_MASKS = 3  # whose colors are compared
_WRITE_CLASSES = (
    "write gray masks with only the ids of classes, as the script for panoptic masks in "
    "docs/objects.md#panoptic-masks does; in ADE20K, the class is red // 10 * 256 + green"
)
_MAY_BE_NOISE = "may be noise, for example along edges"
# The part of a reject's detail that has the brackets with a value for each color of its mask.
_CURE = re.compile(r"its (?P<key>\w+) has [^\[]*: \[(?P<values>#[0-9a-f]{6}=[^\]]*)\]")


def describe_colors(counts: Mapping[int, int], rule: str) -> str:
    """Explains that a file has several channels; lists its colors, and how to give them values.

    Args:
        counts: color, 0xRRGGBB -> number of pixels.
        rule: what kind of file is needed.
    """
    main = select_main_colors(counts)
    noun = "color" if len(counts) == 1 else "colors"
    start = f"has {len(counts):,} {noun} ({_name_colors(main)})"
    if len(main) < len(counts):
        share = sum(counts[color] for color in main) / sum(counts.values())
        verb = "covers" if len(main) == 1 else "cover"
        start = (
            f"has {len(counts):,} colors, of which {len(main)} {verb} {_floor_percent(share)}% of "
            f"its pixels ({_name_colors(main)}), and the others {_MAY_BE_NOISE}"
        )
    cure = _spell_cure(_number_colors(main, {}))
    return f"{start}; {rule}: give the colors values in its brackets{cure}"


def describe_unvalued(counts: Mapping[int, int], values: Mapping[int, int]) -> str:
    """Explains that a file has colors without a value, and says how to give each of them a value.

    Args:
        counts: color -> number of pixels.
        values: color -> value, for colors that have one.
    """
    unvalued = counts.keys() - values.keys()
    classes = unvalued.intersection(select_main_colors(counts))
    start = f"has colors without a value: {_name_colors(classes or unvalued)}"
    if not classes:
        return f"{start}; they {_MAY_BE_NOISE}: {_cure_noise(values)}"
    if len(classes) < len(unvalued):
        start = f"{start}, and {len(unvalued) - len(classes):,} others that {_MAY_BE_NOISE}"
    cure = _spell_cure(_number_colors(classes, values))
    return f"{start}; give all colors a value{cure}"


def select_main_colors(counts: Mapping[int, int]) -> list[int]:
    """Selects the colors of a mask that are not noise; selects all unless most are noise.

    Noise consists of many colors with few pixels each, as programs draw them along edges.
    """
    num_pixels = sum(counts.values())
    main = [color for color, count in counts.items() if count > _NOISE_SHARE * num_pixels]
    covered = sum(counts[color] for color in main)
    has_noise = len(counts) > 2 * len(main) and covered >= _MAIN_SHARE * num_pixels
    return main if has_noise else [*counts]


def _floor_percent(share: float) -> str:
    """Formats a fraction in percent, with two decimals; never rounds it up to 100."""
    return f"{math.floor(share * 10_000) / 100:g}"


def _cure_noise(colors: Iterable[int]) -> str:
    """Explains how to replace noise with given colors."""
    pixels = " ".join(f"xc:#{color:06x}" for color in sorted(colors))
    return (
        f"with ImageMagick, `convert {pixels} +append colors.png` and `mogrify -path NEW +dither "
        "-remap colors.png FILES` write masks that have only these colors"
    )


def describe_all_colors(details: Iterable[str]) -> Iterator[str]:
    """Yields brackets that give values to all colors of rejected masks, if the colors are few.

    The brackets in the detail of a single reject have only the colors of its own mask.

    Args:
        details: details of rejects for any reason.
    """
    texts_of = collections.defaultdict[str, list[str]](list)
    keys_with_noise = set[str]()
    for detail in details:
        cure = _CURE.match(detail)
        if cure:
            texts_of[cure["key"]].append(cure["values"])
            if _MAY_BE_NOISE in detail:
                keys_with_noise.add(cure["key"])
    for key, texts in texts_of.items():
        if _are_ids([_parse_values(text).keys() for text in texts]):
            yield (
                f"no color but black is in two masks of {key}, so the colors seem to be ids of "
                f"segments or objects, not classes: {_WRITE_CLASSES}"
            )
            continue
        values = _merge_values([_parse_values(text) for text in dict.fromkeys(texts)])
        if len(values) > _MOST_VALUES:
            yield (
                f"the masks of {key} have {len(values):,} different colors, too many to be "
                "classes: if their channels hold ids of classes and objects, as in ADE20K, "
                f"{_WRITE_CLASSES}"
            )
            continue
        brackets = _spell_values(values)
        noise = f"; if others are noise: {_cure_noise(values)}" if key in keys_with_noise else ""
        yield f"the brackets for {key} that give all of these colors a value: {brackets}{noise}"


def _are_ids(colors: Sequence[Set[int]]) -> bool:
    """Whether several masks have several colors each, but no two share one other than black.

    Args:
        colors: the colors of each mask.
    """
    areas = [mask - {0} for mask in colors]
    several = [mask for mask in areas if len(mask) > 1]
    return len(several) >= _LEAST_MASKS and sum(map(len, areas)) == len(set().union(*areas))


def _merge_values(all_values: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Gives every color a value; colors that always have the same value keep it."""
    given, *others = all_values
    kept = {*given.items()}
    for values in others:
        kept &= values.items()
    colors = {*given}.union(*others)
    return _number_colors(colors, dict(kept))


def _number_colors(colors: Iterable[int], values: Mapping[int, int]) -> dict[int, int]:
    """Gives each color a value: colors that have one keep it, others get the next free number."""
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
    """Returns text to follow `give`: the brackets, or a few of their parts if there are many."""
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
