"""Separates split lists that share images, as in YOLO and Pascal VOC."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.schema.differences import join_names


class SplitList(NamedTuple):
    """A list of the images in a split.

    Attributes:
        name: the name of the list in messages.
        images: the images, in order.
    """

    name: str
    images: Mapping[str, None]


class SeparatedLists(NamedTuple):
    """Lists that share no images.

    Attributes:
        images: the images of each list, in order; an image in several lists stays in the first
            list.
        problems: image that is in two lists -> what is wrong with the image.
        notes: lines for users about changes to the lists.
    """

    images: list[Mapping[str, None]]
    problems: dict[str, str]
    notes: list[str]


def separate_lists(lists: Sequence[SplitList]) -> SeparatedLists:
    """Removes images that are in two lists from the later list.

    Such images become rejects, since an image in two splits makes a test worthless. But a list that
    is a copy of another list is left out: some data sets use the same images for val and test.

    Raises:
        ValueError: all images of a list are in another, longer list.
    """
    images_of = [split_list.images for split_list in lists]
    problems = dict[str, str]()
    notes = list[str]()
    for earlier, later in itertools.combinations(range(len(lists)), 2):
        shared = images_of[earlier].keys() & images_of[later].keys()
        if not shared:
            continue
        names = f"{lists[earlier].name} and {lists[later].name}"
        if images_of[earlier].keys() == images_of[later].keys():
            notes.append(f"{names} name the same images, which are only in the split of the first")
            images_of[later] = {}
            continue
        if len(shared) in (len(images_of[earlier]), len(images_of[later])):
            raise ValueError(
                f"{names} share {counted(len(shared), 'image')}, such as {min(shared)}, and one of "
                "them has no other images: each image may be in only one split, so give lists "
                "that have no image in common"
            )
        shown = join_names(sorted(shared))
        images = counted(len(shared), "image")
        notes.append(f"{names} have {images} in common, which become rejects: {shown}")
        problem = f"is in two splits, according to {names}; remove it from one"
        problems |= dict.fromkeys(shared, problem)
        rest = [image for image in images_of[later] if image not in shared]
        images_of[later] = dict.fromkeys(rest)
    return SeparatedLists(images_of, problems, notes)
