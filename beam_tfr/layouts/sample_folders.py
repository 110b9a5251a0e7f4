"""Finds folders that hold the files of one sample each, such as the bands of a satellite image."""

import re
from collections.abc import Collection, Iterable, Sequence

from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.extensions import stem_of_image
from beam_tfr.schema.spelling import spell_option

_LEAST_FOLDERS = 3
_MOST_FOLDERS = 20  # that are looked into
_MOST_PARTS = 20  # in a sample
_DIGITS = re.compile("[0-9]+")


def describe_sample_folders(folders: Iterable[str], names_in: NamesIn) -> str:
    """Returns a message about class folders that seem to be samples, or an empty string.

    In such folders, files have the same names, or the name of the folder and the same ends, as in
    BigEarthNet: S2A_1/S2A_1_B02.tif, S2A_1/S2A_1_B03.tif, S2A_2/S2A_2_B02.tif.

    Args:
        folders: image folders, whose names are their classes.
        names_in: returns the names of the images in a folder, or an empty sequence if the names are
            unknown.
    """
    looked_at = sorted(folders)[:_MOST_FOLDERS]
    if len(looked_at) < _LEAST_FOLDERS:
        return ""
    parts = _list_parts(looked_at[0], names_in)
    if not 1 < len(parts) <= _MOST_PARTS or not _are_named(parts):
        return ""
    if any(_list_parts(folder, names_in) != parts for folder in looked_at[1:]):
        return ""
    sample = looked_at[0].rpartition("/")[2]
    pattern = f"DIR/**/{parts[0]}.*"
    return (
        f"folders seem to be samples, not classes: each holds the same files, {join_names(parts)}, "
        f"such as {sample}; {spell_option('layout', '*')} converts images without classes, and "
        f"{spell_option('input', pattern)} only one file of each sample"
    )


def _list_parts(folder: str, names_in: NamesIn) -> Sequence[str]:
    """Returns the stems of the images in a folder, sorted, with * for the name of the folder."""
    name = folder.rpartition("/")[2]
    stems = [stem_of_image(file) for file in names_in(folder)]
    if name and all(stem.startswith(name) for stem in stems):
        stems = [f"*{stem.removeprefix(name)}" for stem in stems]
    return sorted(stems)


def _are_named(parts: Collection[str]) -> bool:
    """Whether names of files do more than number the images of a class."""
    words = {_DIGITS.sub("", part) for part in parts}
    least_letters = 1 if all(part.startswith("*") for part in parts) else 2
    have_letters = all(sum(map(str.isalpha, word)) >= least_letters for word in words)
    return have_letters and (len(words) > 1 or least_letters == 1)
