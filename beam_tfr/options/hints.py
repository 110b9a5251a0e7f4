"""Hints on names that do not exist: what is spelled similarly."""

import difflib
from collections.abc import Iterable

DESTRUCTIVE = "--overwrite"  # never suggested for a flag that is misspelled


def nearest(text: str, known: Iterable[str]) -> str:
    """The known flag or value most similar to `text`; empty if there is none."""
    names = {name.lstrip("-"): name for name in known}  # dashes alone would make short flags alike
    near = difflib.get_close_matches(text.lstrip("-"), names, n=1, cutoff=0.7)
    return names[near[0]] if near else ""


def meant(flag: str, known: Iterable[str]) -> str:
    """What to say about an unknown flag: "did you mean --encoding?"; empty if none is similar."""
    near = nearest(flag, {*known} - {DESTRUCTIVE})
    return near and f"did you mean {near}?"
