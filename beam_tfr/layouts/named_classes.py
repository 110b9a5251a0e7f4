"""Finds classes in file names, such as cat_1.jpg, and the layouts that read them."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.layouts.split_names import (
    is_split_word,
    is_split_word_or_short,
    split_within,
    splits_of_file,
    without_splits,
)
from beam_tfr.schema.spelling import spell_option

# A name that begins with a class. The text between class and number becomes part of the layout.
_NUMBERED = re.compile(
    r"[^0-9]*[^0-9._ (-](?P<mark>[._ -]+)(?P<open>\(?)[0-9]+(?P<close>\)?)\.[^.]+"
)  # cat.1.jpg, great_pyrenees_1.jpg, cat (1).jpg
_DIRECTLY = re.compile(r"[^0-9]*[A-Za-z]{3}[0-9]+\.[^.]+")  # glass1.jpg
# As in Edge Impulse: cat.2kl1a0b3.jpg, cat.1.jpg.2kl1a0b3.jpg
_WITH_ID = re.compile(
    r"[A-Za-z][A-Za-z_ -]*\.(?:.+\.)?(?=[^.]*[0-9])(?=[^.]*[A-Za-z])[0-9A-Za-z]{6,}\.[^.]+"
)
# 12_frog.png, IMG_3_dog.jpg
_BEHIND = re.compile(
    r"(?P<before>(?:[A-Za-z]+[._ -]*)?)[0-9]+(?P<mark>[._ -]+)[A-Za-z](?:[^0-9]*[^0-9._ -])?\.[^.]+"
)
_SYNSET = re.compile(r"n[0-9]{8}_[0-9]+\.[^.]+")  # n01440764_18.JPEG in ImageNet
_PERSON = re.compile(r"-?[0-9]+_c[0-9].*")  # 0002_c1s1_000451_03.jpg in Market-1501
# Words that cameras and programs put before a number.
_NO_CLASS = re.compile(
    r"(?i)(?:i|im|img|images?|dsc[a-z]?|p|pxl|photos?|pics?|pictures?|frames?|scan|screenshot|file"
    r"|video|vid|crop|patch|tile|sample|data|train(?:ing)?|val(?:id)?|test(?:ing)?"
    r"|rgb|masks?|depth|labels?|gt)[-_ .]*"
)
_FIRST_WORD = re.compile("([A-Za-z]+)([._ -]+)")
_VALUES = re.compile(r"[0-9]+(?:_[0-9]+){2,}\..*")  # 25_0_1_20170116.jpg in UTKFace
_NUMBERS = re.compile(
    r"(?s)(?:[0-9]+[^0-9A-Za-z]+){3,}[0-9]+\..*"
)  # 01-90_85-274&482-43.jpg in CCPD
_EXAMPLE = "{label}_{number}.*"
# A numbered class, which may also be a sequence: obj1__0.png in COIL-100.
_NUMBERED_CLASS = re.compile(r"(?P<label>([A-Za-z]+)[0-9]+)(?P<mark>[._ -]+)[0-9]+\.[^.]+")
# A class that may itself contain digits, and the number after it: obj1__0.png.
_ANY_NUMBERED = re.compile(r".*[^._ (-](?P<mark>[._ -]+)(?P<open>\(?)[0-9]+(?P<close>\)?)\.[^.]+")


def _spell_numbered(name: re.Match[str]) -> str:
    """Returns the layout for a name that ends in a separator and a number."""
    return f"{{label}}{name['mark']}{name['open']}{{number}}{name['close']}.*"


def find_named_class(name: str) -> str:
    """Returns the layout for a file name with a class, such as cat.1.jpg, or an empty string."""
    numbered = _NUMBERED.fullmatch(name)
    if numbered:
        return _spell_numbered(numbered)
    behind = _BEHIND.fullmatch(name)
    if behind and _is_no_class(behind["before"]):
        return f"{behind['before']}{{number}}{behind['mark']}{{label}}.*"
    if _SYNSET.fullmatch(name):
        return _EXAMPLE
    if _DIRECTLY.fullmatch(name):
        return "{label}{number}.*"
    if _WITH_ID.fullmatch(name):
        return "{label}.*.*"
    return "{label}_c*" if _PERSON.fullmatch(name) else ""


def _is_no_class(text: str) -> bool:
    """Whether the text before a number is not a class.

    That is, whether it is empty, a word that cameras or programs put there, or the n of ImageNet's
    ids.
    """
    return text in ("", "n") or _NO_CLASS.fullmatch(text) is not None


def find_named_classes(names: Iterable[str]) -> Mapping[str, str]:
    """Returns the classes in file names, by the layout that matches most names.

    Returns:
        Name -> its class; an empty mapping if there is only one class, if classes differ only in
        splits, or if the words are typical of cameras, as in IMG_1.jpg.
    """
    all_names = [*names]
    layout = find_named_layout(all_names)
    return _read_classes(all_names, layout) if layout else {}


def find_named_layout(names: Iterable[str]) -> str:
    """Returns the layout that reads the classes of `find_named_classes`, or an empty string."""
    all_names = [*names]
    layouts = {*map(find_named_class, all_names)} - {""}
    classes_of = {layout: _read_classes(all_names, layout) for layout in layouts}
    several = [layout for layout in layouts if _are_several({*classes_of[layout].values()})]
    return max(several, key=lambda layout: (len(classes_of[layout]), layout), default="")


def _are_several(classes: Iterable[str]) -> bool:
    """Whether classes differ in more than splits, unlike CLEVR_train and CLEVR_val."""
    return len({*map(without_splits, classes)}) > 1


def _read_classes(names: Iterable[str], layout: str) -> dict[str, str]:
    """Returns name -> its class, for names from which the layout would be derived.

    Other names may also match the layout: {label}_{number}.* reads a class from
    ILSVRC2012_val_1.jpg.
    """
    parsed_layout = parse_layout(layout)
    classes = {}
    for name in names:
        values = parsed_layout.parse_key(name) if find_named_class(name) == layout else None
        if values and not _NO_CLASS.fullmatch(values["label"]):
            classes[name] = values["label"]
    return classes


def are_all_named(names: Sequence[str]) -> bool:
    """Whether all names contain classes, at least one of which occurs several times."""
    classes = find_named_classes(names)
    return len(classes) == len({*names}) > len({*classes.values()})


def describe_numbered_classes(folders: Collection[str], names_in: NamesIn) -> str:
    """Returns a message about numbered classes in the names of all images, or an empty string.

    All images must be in one folder, and a class must have several images: obj1__0.png, obj1__5.png
    and obj2__0.png.

    Args:
        folders: image folders.
        names_in: folder -> the names of its files, if known.
    """
    if len(folders) != 1 or split_within(min(folders)):
        return ""
    names = {*names_in(min(folders))}
    matches = [*filter(None, map(_NUMBERED_CLASS.fullmatch, names))]
    marks = {match["mark"] for match in matches}
    classes = {match["label"] for match in matches}
    are_named = len(matches) == len(names) > len(classes) > 1
    if not are_named or len(marks) > 1 or any(_NO_CLASS.fullmatch(match[2]) for match in matches):
        return ""
    layout = f"{{label}}{min(marks)}{{number}}.*"
    return (
        f"names such as {min(names)} may begin with classes: if they do, "
        f"{spell_option('layout', layout)} reads these"
    )


def suggest_layout(name: str) -> str:
    """Suggests the layout for files without a folder that are named like cat_1.jpg.

    The layout also reads splits, as in train_cat_1.jpg. Returns an empty string if the name begins
    with a word typical of cameras, as in IMG_1.jpg, does not have such a form, as in 001.jpg, or
    consists of numbers.
    """
    numbered = _ANY_NUMBERED.fullmatch(name)
    named_class = find_named_class(name) or (_spell_numbered(numbered) if numbered else _EXAMPLE)
    if _VALUES.fullmatch(name):
        named_class = "{label}_*"
    elif _NUMBERS.fullmatch(name):
        return ""
    first = _FIRST_WORD.match(name)
    if first and is_split_word_or_short(first[1]):
        rest = find_named_class(name[first.end() :])
        if rest:
            return f"{{split}}{first[2]}{rest}"
        if is_split_word(first[1]):
            return named_class.replace("{label}", "{split}")
    values = parse_layout(named_class).parse_key(name)
    if values is None or _NO_CLASS.fullmatch(values["label"]) or splits_of_file(values["label"]):
        return ""  # IMG_1.jpg, ILSVRC2012_val_00000001.JPEG
    return named_class
