"""Describes classes that annotation files declare but no object has."""

from collections.abc import Iterator, Sequence

from beam_tfr.schema.differences import join_texts
from beam_tfr.tables.base import FileClasses


def describe_unused_classes(files: Sequence[FileClasses], num_files: int) -> Iterator[str]:
    """Yields a line about classes that no object has, if there are any objects.

    Args:
        files: the classes of the files that were read, in the order of the file names.
        num_files: the number of all files.
    """
    names = dict.fromkeys(name for file in files for name in file.names)
    used = frozenset[str]().union(*(file.used for file in files))
    unused = [f"{name!r:.60}" for name in names if name not in used]
    if not used or not unused:
        return
    condition = ""
    if num_files == 1:
        place = f"{files[0].path}: no annotation"
    elif len(files) == num_files:
        place = f"no annotation of the {num_files:,} files"
    else:
        place = f"no annotation of the first {len(files):,} of {num_files:,} files"
        condition = "another file has annotations of them, or "
    yield (
        f"{place} has {len(unused)} of the {len(names)} categories: {join_texts(unused)}; the "
        f"dataset has them as classes only if {condition}a file with all names is given as "
        "`classes=`"
    )
