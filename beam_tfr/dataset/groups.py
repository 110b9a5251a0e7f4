"""Finds the largest group of images in a dataset with {group} in its layout."""

import collections
from typing import NamedTuple

from beam_tfr.dataset.lookup import read_all_contents
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.schema.errors import BeamTfrError

_MOST_IMAGES = 1_000_000  # the keys of more are not read for a note


class LargestGroup(NamedTuple):
    """The largest of several groups.

    Attributes:
        name: name of the group.
        images: number of images in the group.
    """

    name: str
    images: int

    @classmethod
    def of(cls, groups: collections.Counter[str]) -> "LargestGroup | None":
        """Returns the largest group; None if there are no groups.

        If several groups have the same size, returns the first by name.
        """
        if not groups:
            return None
        name = min(groups, key=lambda group: (-groups[group], group))
        return cls(name, groups[name])


def find_largest_group(dataset: Manifest) -> LargestGroup | None:
    """Finds the largest group, using the layout of a dataset and the keys in its contents.

    Returns None if the layout has no groups, the dataset has too many images, or the contents
    cannot be read.
    """
    layout_option = str(dataset.options.get("layout", ""))
    if "{group}" not in layout_option or dataset.counts["written"] > _MOST_IMAGES:
        return None
    layout = parse_layout(layout_option)
    groups = collections.Counter[str]()
    try:
        for table in read_all_contents(dataset, ["key"]):
            for key in table.column("key").to_pylist():
                group = layout.group_of(key or "")
                if group is not None:
                    groups[group] += 1
    except (BeamTfrError, OSError):
        return None
    return LargestGroup.of(groups)
