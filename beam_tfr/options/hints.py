"""Hints on names that do not exist: what is spelled similarly, and what users of other tools type."""

import difflib
from collections.abc import Iterable

NO_DRY_RUN = "`beam-tfr plan` shows what convert would do, and `limit=` converts a few images"
DESTRUCTIVE = ("overwrite",)  # never suggested for a flag that is misspelled
# Where spelling does not lead from what is typed to what is meant: a flag, perhaps with a value, or advice.
_MEANT = {
    **dict.fromkeys(("format", "image_format", "output_format"), "--encoding"),
    **dict.fromkeys(("cores", "jobs", "num_threads", "num_workers", "threads", "workers"), "--direct_num_workers"),
    **dict.fromkeys(("data_dir", "i", "images", "in", "input_dir", "source", "src"), "--input"),
    **dict.fromkeys(("dest", "destination", "o", "out", "output_dir"), "--output"),
    **dict.fromkeys(("height", "imgsz", "resolution", "size", "width"), "--image_size HEIGHTxWIDTH"),
    "annotations": "--table",
    "dry_run": NO_DRY_RUN,
    "shuffle": "records are always stored in a random order, that of --seed; load(…, shuffle=True) shuffles them again",
}


def nearest(text: str, known: Iterable[str]) -> str:
    """The known flag or value most similar to `text`; empty if there is none."""
    names = {name.lstrip("-"): name for name in known}  # dashes alone would make short flags alike
    near = difflib.get_close_matches(text.lstrip("-"), names, n=1, cutoff=0.7)
    return names[near[0]] if near else ""


def meant(flag: str, known: Iterable[str]) -> str:
    """What to say to an unknown flag: "did you mean --encoding?", or advice; empty if nothing is known."""
    flags = {name for name in known if name.lstrip("-") not in DESTRUCTIVE}
    told = _MEANT.get(flag.lstrip("-").lower().replace("-", "_"), "")
    if told and not told.startswith("-") and "--output" in flags:
        return told
    near = told if told.partition(" ")[0] in flags else nearest(flag, flags)
    return near and f"did you mean {near}?"
