"""Names the layouts that read classes at other levels of folders, or read no classes."""

from collections.abc import Collection, Iterable, Iterator

from beam_tfr.layouts.misread_folders import read_folders
from beam_tfr.layouts.name_pattern import IMAGES
from beam_tfr.layouts.split_levels import share_names
from beam_tfr.layouts.split_names import find_split_folders
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.spelling import spell_option


def describe_class_levels(layout: str, folders: Collection[str]) -> str:
    """Names the classes that a layout reads, and the layouts that read other classes or none.

    Returns an empty string if there is no doubt about the classes.

    Args:
        layout: the layout that is used.
        folders: image folders that the layout reads correctly.
    """
    classes = sorted(find_values(layout, folders, "label") - {""})
    others = []
    for other in _list_other_layouts(layout, folders):
        other_classes = find_values(other, folders, "label") - {""}
        if may_be_classes(other_classes):
            others.append(
                f"{spell_option('layout', other)} for {join_names(sorted(other_classes))}"
            )
    if len(classes) > 1 and _are_apart(layout, folders):
        without_classes = layout.replace("/{label}/**", "/**").replace("{label}", "*")
        others.append(
            f"{spell_option('layout', without_classes)} for no classes, since no two splits share "
            "a class"
        )
    if not others:
        return ""
    kind = f"the classes {join_names(classes)}" if classes else "no classes"
    return f" for {kind}, or {', or '.join(others)}"


def _list_other_layouts(layout: str, folders: Collection[str]) -> Iterator[str]:
    """Yields the layouts that read classes one level higher or lower."""
    if "{label}" not in layout and layout.startswith("*/{split}/**"):
        yield layout.replace("*/{split}/**", "{label}/{split}/**")  # cat/test/images/1.jpg
    yield from filter(None, [move_label_up(layout)])
    start, is_deep, _ = layout.partition("/{label}/**")
    inner_layout = f"{start}/*/{{label}}/*"
    if is_deep and _are_apart(inner_layout, folders):
        splits = [_read_splits(each, folders) for each in (layout, inner_layout)]
        if splits[0] == splits[1]:
            yield inner_layout  # test/archery/video7/1.jpg


def move_label_up(layout: str) -> str:
    """Returns the layout for classes one level higher, or an empty string."""
    if layout.startswith("{label}/*/"):
        return f"{{label}}/*/{layout.removeprefix('{label}/')}"
    start, is_inside, end = layout.partition("/*/{label}/")
    if not is_inside:
        return ""
    return f"{start}/{{label}}/{end if end == '**' else f'*/{end}'}"


def find_values(layout: str, folders: Iterable[str], name: str) -> set[str]:
    """Returns the labels or splits that a layout reads; an empty string stands for none."""
    return {values.get(name, "") for values in read_folders(folders, layout).values()}


def may_be_classes(names: Collection[str], least: int = 2) -> bool:
    """Whether there are enough names, all of which may be names of classes.

    Names of splits and of image folders cannot be names of classes, nor can an empty string.
    """
    if len(names) < least or "" in names or find_split_folders(names):
        return False
    return not any(map(IMAGES.fullmatch, names))


def _read_splits(layout: str, folders: Iterable[str]) -> list[str]:
    """Returns the split that a layout assigns to each folder."""
    return [values.get("split", "") for values in read_folders(folders, layout).values()]


def _are_apart(layout: str, folders: Iterable[str]) -> bool:
    """Whether a layout reads classes in several splits, but no class is in two of them."""
    all_values = read_folders(folders, layout).values()
    classes = [(values["label"], values["split"]) for values in all_values if "label" in values]
    splits = {split for _, split in classes}
    return len(splits) > 1 and not share_names(classes)
