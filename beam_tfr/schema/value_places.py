"""Names the places that classes and splits are read from."""

from typing import NamedTuple

SHARES = "shares"  # of splits: `splits=` or `folds=`


class ValuePlaces(NamedTuple):
    """Where classes and splits are read from: "folder", "file name", "column kind", "table", ….

    Attributes:
        label: where classes are read from; empty if that is not known.
        split: where splits are read from; empty if that is not known, or if there is one split.
    """

    label: str = ""
    split: str = ""
