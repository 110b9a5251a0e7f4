"""Describes the options that convert images with their masks, and the folders that are left out."""

import collections
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.layouts.class_levels import find_values, may_be_classes, move_label_up
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.layouts.split_names import find_split_folders
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.pair_paths import fill_path
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.wildcards import pattern_below

_OPTIONAL = "[optional]"
_DIGIT = re.compile("[0-9]")
_MOST_FILES = 900  # in a folder, if all of its names are known
NamesIn = Callable[[str], Sequence[str]]  # folder -> the names of its files, if known
_MOST_LEVELS = 4  # of folders around those of splits
_MOST_PATTERNS = 5  # patterns in a message


class MaskCure(NamedTuple):
    """The options that convert images together with their masks.

    Attributes:
        folder: the input, relative to the folder that all images share; an empty string for that
            folder itself.
        pair: name of the masks in `pair=`.
        path: path of an image's mask, for `pair=`.
        layout: how to read images.
        images: name of the image folders.
    """

    folder: str
    pair: str
    path: str
    layout: str
    images: str

    def describe(self) -> str:
        """Returns the options, for messages."""
        pair = spell_option("pair", f"{self.pair}={self.path}")
        options = f"{pair} {spell_option('layout', self.layout)}"
        return (
            f"{spell_option('input', f'DIR/{self.folder}')} {options}" if self.folder else options
        )

    def fit_layout(self, folders: Iterable[str]) -> "MaskCure":
        """Returns the options with a layout that fits all images with masks, if there is one.

        Args:
            folders: all folders, relative to the folder that all images share.
        """
        if not self.layout.endswith("/*"):
            return self  # the names of files decide
        paired = self._list_paired(folders)
        outer_layout = move_label_up(self.layout)
        if outer_layout and may_be_classes(find_values(outer_layout, paired, "label")):
            return self._replace(layout=outer_layout)
        if "{split}" not in self.layout:
            return self
        deep_layout = parse_layout(re.sub(r"(/\*)+$", "/**", self.layout))
        deep_layouts = [str(deep_layout.below(level)) for level in range(_MOST_LEVELS)]
        for layout in [self.layout, *deep_layouts]:
            splits = find_values(layout, paired, "split")
            if find_split_folders(splits).keys() == splits:
                return self._replace(layout=layout)
        return self

    def describe_other_classes(self, folders: Iterable[str]) -> str:
        """Names the layout for classes at another level, or returns an empty string.

        The other classes are one level lower; or a single class is one level higher if the classes
        are numbered, as sequences of a class are.

        Args:
            folders: all folders, relative to the folder that all images share.
        """
        paired = self._list_paired(folders)
        classes = find_values(self.layout, paired, "label")
        other_layout = self.layout.replace("{label}/*/*/*", "*/{label}/*/*").removeprefix("*/")
        if other_layout == self.layout:
            other_layout = move_label_up(self.layout)
            if not other_layout or not all(map(_DIGIT.search, classes)):
                return ""
        others = find_values(other_layout, paired, "label")
        if not may_be_classes(others, least=1):
            return ""
        are = "class is" if len(others) == 1 else "classes are"
        return (
            f", with the classes {join_names(sorted(classes))}; if the {are} "
            f"{join_names(sorted(others))} instead, use {spell_option('layout', other_layout)}"
        )

    def _list_paired(self, folders: Iterable[str]) -> list[str]:
        """Returns the folders that have masks, relative to the input."""
        mask_of = self._find_masks(sorted({*folders}))
        return [f"{folder}/".removeprefix(self._start).rstrip("/") for folder in mask_of]

    def describe_rest(self, folders: Iterable[str], masks: Iterable[str]) -> str:
        """Explains what happens to images without masks, or in other folders, if there are any.

        Args:
            folders: all folders, relative to the folder that all images share.
            masks: folders that are named like mask folders.
        """
        all_folders = sorted({*folders})
        named_masks = {*masks}
        mask_of = self._find_masks(all_folders)
        paired = {*mask_of, *mask_of.values()}
        within = list[str]()
        elsewhere = list[str]()
        for folder in all_folders:
            if folder in paired:
                continue
            if f"{folder}/".startswith(self._start):
                within.append(folder)
            elif folder not in named_masks:
                elsewhere.append(folder)
        text = ""
        if within and not self.path.endswith(_OPTIONAL):
            patterns = dict.fromkeys(self._exclude(within, mask_of))
            excluded = [*patterns][:_MOST_PATTERNS]
            text = f"; {spell_option('exclude', *excluded)} leaves out other folders"
            if not named_masks.issuperset(within):
                text += f", and {_OPTIONAL} after the path keeps images without a mask"
        if elsewhere:
            text += f"; this leaves out images in {join_texts(elsewhere, most=2, separator=', ')}"
        return text

    def describe_misfits(self, folders: Iterable[str], names_in: NamesIn) -> str:
        """Names a folder in which no mask has the expected name, or returns an empty string.

        Args:
            folders: all folders, relative to the folder that all images share.
            names_in: folder -> the first names of its files, if known.
        """
        for folder, mask_folder in self._find_masks(sorted({*folders})).items():
            images = names_in(folder)
            masks = names_in(mask_folder)
            if not images or not masks or max(len(images), len(masks)) >= _MOST_FILES:
                continue
            stems = {posixpath.splitext(mask)[0] for mask in masks}
            keys = [posixpath.join(folder, image).removeprefix(self._start) for image in images]
            paths = [fill_path(self.path.removesuffix(_OPTIONAL), key) for key in keys]
            if stems.isdisjoint(posixpath.splitext(posixpath.basename(path))[0] for path in paths):
                return (
                    f"; masks in {mask_folder} have other names, such as {min(masks)} for "
                    f"{min(images)}: rename them, or convert {folder} separately"
                )
        return ""

    @property
    def _start(self) -> str:
        return f"{self.folder}/" if self.folder else ""

    def _find_masks(self, folders: Sequence[str]) -> Mapping[str, str]:
        """Returns image folder -> mask folder, for image folders that have one.

        If several folders would have the same mask folder, as image_2 and instance next to semantic
        would, only the folder that is named like the image folders has the mask folder.
        """
        known_folders = {*folders}
        images_of = collections.defaultdict[str, list[str]](list)
        for folder in folders:
            if not f"{folder}/".startswith(self._start):
                continue
            key = posixpath.join(folder, "1").removeprefix(self._start)
            path = posixpath.normpath(self._start + fill_path(self.path, key))
            mask_folder = posixpath.dirname(path)
            if mask_folder in known_folders and mask_folder != folder:
                images_of[mask_folder].append(folder)
        mask_of = {}
        for mask_folder, image_folders in images_of.items():
            named = [name for name in image_folders if posixpath.basename(name) == self.images]
            for folder in named or image_folders:
                mask_of[folder] = mask_folder
        return mask_of

    def _exclude(self, unpaired: Sequence[str], paired: Iterable[str]) -> Iterator[str]:
        """Yields patterns for the files in folders without masks."""
        paired_names = {*map(posixpath.basename, paired)}
        for folder in unpaired:
            name = posixpath.basename(folder)
            if name in paired_names:
                yield pattern_below(folder.removeprefix(self._start), "/*")
            else:
                yield pattern_below(name, "/*", "**/")
