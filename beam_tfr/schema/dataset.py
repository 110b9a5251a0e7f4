"""What a dataset has beside its records: files, the names of splits and classes, reasons of rejects."""

from __future__ import annotations

import unicodedata

FORMAT_VERSION = 1  # of manifest.json and of everything under .beam_tfr/

# Files of a dataset beside its shards.
MANIFEST_FILE = "manifest.json"
LABELS_FILE = "labels.txt"
REJECTS_FILE = "rejects.jsonl"
WORK_FOLDER = ".beam_tfr"  # plan, lock, sidecars, unfinished files; gone when the dataset is complete

NO_SPLIT = "none"  # where images stand that no split could be found for: rejects only, no records

# Why an image is not in the dataset: a closed list, so that reports can be counted and compared.
REJECT_REASONS: dict[str, str] = {
    "bad-value": "a value in the table is missing, or does not fit the type of its column",
    "layout-mismatch": "the key does not have the parts that --layout names",
    "unknown-class": "the class is not in the file that --classes names",
    "not-an-array": "the content is no .npy array of numbers or texts",
    "damaged-array": "the .npy array has more or fewer bytes than its header promises",
    "not-found": "the file was listed and is no longer there",
    "changed-while-reading": "the object was replaced, or the file changed, after it was listed",
    "unreadable": "the file is there and its bytes cannot be read",
    "empty-file": "the file has no bytes",
    "not-an-image": "the content is of no image format that is read",
    "damaged-image": "the content is of an image format and does not decode to the end",
    "unsupported-image": "an image of a kind that no decoder here reads; the detail names the extra that does",
    "too-many-pixels": "the header promises more pixels than are decoded, or the result would have too many",
    "too-many-scans": "a progressive JPEG with so many scans that it would take minutes",
    "too-few-pixels": "smaller than --min_pixels",
    "extreme-aspect": "longer and thinner than --max_aspect, or than the encoding can hold",
    "several-frames": "an animation or a file of several pages, with --frames reject",
    "decode-timeout": "took longer than --max_decode_s",
    "crashed-decoder": "ended the guarded process that decoded it",
    "file-too-large": "the file has more bytes than are read",
}

# What was done to images that did not come as ordinary ones; counted in the manifest, a closed list too.
ADJUSTMENTS: dict[str, str] = {
    "wrong-extension": "the name ends like another format than the content is of",
    "rotated": "turned or mirrored as EXIF says",
    "first-frame": "the first of several frames or pages was taken",
    "alpha-composited": "transparent pixels were laid over --background",
    "depth-scaled": "more than 8 bits a sample were scaled to 8",
    "cmyk-converted": "CMYK became RGB",
    "profile-converted": "an embedded colour profile other than sRGB was converted",
    "profile-ignored": "an embedded colour profile could not be used",
    "aspect-changed": "stretched by more than 1.2 in one direction",
    "enlarged": "has more rows or columns than the source",
    "re-encoded": "with --encoding keep: the file's own bytes could not be kept",
    "kept-unusual": "with --keep_all: kept though trainers show it turned or in wrong colours",
    "padding-ignored": "a JPEG with a few stray bytes in its header or before its end, sound otherwise",
}


def is_class_name(text: object) -> bool:
    """Whether a text can be a line of labels.txt and come back as it was: no control characters, no line ends, no
    spaces at its ends, no lone surrogates.
    """
    return (
        isinstance(text, str)
        and text.splitlines() == [text]
        and text == text.strip()
        and not text.startswith("\ufeff")  # a byte order mark, which readers of text files drop
        and not any(unicodedata.category(char) in ("Cc", "Cs") for char in text)
    )
