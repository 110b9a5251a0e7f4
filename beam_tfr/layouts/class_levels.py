"""Names the layouts that read classes at other levels of folders, or no classes."""

from collections.abc import Collection, Iterable, Iterator

from beam_tfr.layouts.mask_folders import IMAGES
from beam_tfr.layouts.misread_folders import read_folders
from beam_tfr.layouts.split_levels import share_names
from beam_tfr.layouts.split_names import find_split_folders
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.spelling import spell_option


def describe_class_levels(layout: str, folders: Collection[str]) -> str:
    """Names the classes that a layout reads, and the layouts that read others or none.

    Returns an empty string if there is no doubt about the classes.

    Args:
        layout: the layout that is used.
        folders: image folders that the layout reads correctly.
    """
    classes = _find_classes(layout, folders)
    others = []
    for other in _list_other_layouts(layout, folders):
        other_classes = _find_classes(other, folders)
        if _may_be_classes(other_classes):
            others.append(f"{spell_option('layout', other)} for {join_names(other_classes)}")
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
    start, is_inside, end = layout.partition("/*/{label}/")
    if is_inside:
        yield f"{start}/{{label}}/{end if end == '**' else f'*/{end}'}"
    start, is_deep, _ = layout.partition("/{label}/**")
    inner_layout = f"{start}/*/{{label}}/*"
    if is_deep and _are_apart(inner_layout, folders):
        splits = [_read_splits(each, folders) for each in (layout, inner_layout)]
        if splits[0] == splits[1]:
            yield inner_layout  # test/archery/video7/1.jpg


def _may_be_classes(names: Collection[str]) -> bool:
    """Whether there are several names, and none is that of a split or of an image folder."""
    return (
        len(names) > 1 and not find_split_folders(names) and not any(map(IMAGES.fullmatch, names))
    )


def _find_classes(layout: str, folders: Iterable[str]) -> list[str]:
    """Returns the classes that a layout reads, sorted."""
    values_of = read_folders(folders, layout)
    return sorted({values["label"] for values in values_of.values() if "label" in values})


def _read_splits(layout: str, folders: Iterable[str]) -> list[str]:
    """Returns the split of each folder, as a layout reads it."""
    return [values.get("split", "") for values in read_folders(folders, layout).values()]


def _are_apart(layout: str, folders: Iterable[str]) -> bool:
    """Whether a layout reads classes in several splits, but no class is in two of them."""
    all_values = read_folders(folders, layout).values()
    classes = [(values["label"], values["split"]) for values in all_values if "label" in values]
    splits = {split for _, split in classes}
    return len(splits) > 1 and not share_names(classes)
