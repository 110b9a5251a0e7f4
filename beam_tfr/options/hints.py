"""Hints on names that do not exist: what is spelled similarly, and what users of other tools type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

DESTRUCTIVE = ("overwrite",)  # never suggested for a flag that is misspelled
# Where spelling does not lead from what is typed to what is meant: a flag, perhaps with a value, or advice.
_MEANT = {
    **dict.fromkeys(("annotations", "csv", "metadata"), "--table"),
    **dict.fromkeys(("codec", "format", "image_format", "output_format"), "--encoding"),
    **dict.fromkeys(("center_crop", "crop"), "--resize crop"),
    **dict.fromkeys(("cores", "jobs", "num_threads", "num_workers", "threads", "workers"), "--direct_num_workers"),
    **dict.fromkeys(("data_dir", "i", "images", "in", "input_dir", "source", "src"), "--input"),
    **dict.fromkeys(("debug", "log_level", "v"), "--verbose"),
    **dict.fromkeys(("dest", "destination", "o", "out", "output_dir"), "--output"),
    **dict.fromkeys(("gray", "grayscale", "grey", "greyscale"), "--color gray"),
    **dict.fromkeys(("height", "imgsz", "resolution", "size", "width"), "--image_size HEIGHTxWIDTH"),
    **dict.fromkeys(("ignore", "skip"), "--exclude"),
    **dict.fromkeys(("keep_aspect", "letterbox", "pad"), "--resize pad"),
    **dict.fromkeys(("max_images", "n", "num_images", "sample"), "--limit"),
    **dict.fromkeys(("max_shard_size", "shard_size"), "--target_shard_bytes"),
    **dict.fromkeys(("split", "test_size", "val_split", "validation_split"), "--splits train=0.9,test=0.1"),
    **dict.fromkeys(("plan", "save_plan"), "plans are no longer saved: each conversion lists its input"),
    "shards": "--num_shards",
    # Options of 0.1.
    "check_finished": "it was removed: `beam-tfr verify` reads all shards, and repair rebuilds what is damaged",
    "damaged_share": "it was removed: --damaged keep keeps JPEGs with at least 95% of their rows",
    "export": 'it was removed: beam_tfr.Records(…, output="encoded") reads the images',
    "fail_fast": "--max_rejects 0",
    "gzip_level": "--compression gzip:N",
    "keep_all": "it was removed: --encoding bytes keeps every file as it is",
    "price": "it was removed: multiply the vCPU-hours, GB-hours and so on that plan shows by your prices",
    "max_scan_pixels": "it was removed: the limit is always 1,000,000,000",
    "save_config": "it was removed: write the options into a TOML file for --config",
    "tensorboard": "it was removed: use TensorFlow's own profiler",
    "batch_size": "a dataset has no batches; load(…, batch_size=32) makes them",
    "resume": "the same command resumes by itself",
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
    if told.startswith("it was removed") or (told and not told.startswith("-") and "--output" in flags):
        return told
    near = told if told.partition(" ")[0] in flags else nearest(flag, flags)
    return near and f"did you mean {near}?"
