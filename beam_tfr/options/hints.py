"""Hints on names that do not exist: what is spelled similarly, and what users of other tools type."""

import difflib
from collections.abc import Iterable

DESTRUCTIVE = "--overwrite"  # never suggested for a flag that is misspelled
_MEANT = {  # where spelling does not lead from what is typed to what is meant
    **dict.fromkeys(("format", "image_format"), "--encoding"),
    **dict.fromkeys(("cores", "jobs", "num_threads", "num_workers", "workers"), "--direct_num_workers"),
    **dict.fromkeys(("height", "size", "width"), "--image_size"),
    "annotations": "--table",
}


def nearest(text: str, known: Iterable[str]) -> str:
    """The known flag or value most similar to `text`; empty if there is none."""
    names = {name.lstrip("-"): name for name in known}  # dashes alone would make short flags alike
    near = difflib.get_close_matches(text.lstrip("-"), names, n=1, cutoff=0.7)
    return names[near[0]] if near else ""


def meant(flag: str, known: Iterable[str]) -> str:
    """What to say about an unknown flag: "did you mean --encoding?"; empty if nothing is known."""
    flags = {*known} - {DESTRUCTIVE}
    word = _MEANT.get(flag.lstrip("-").lower().replace("-", "_"), "")
    near = word if word in flags else nearest(flag, flags)
    return near and f"did you mean {near}?"
