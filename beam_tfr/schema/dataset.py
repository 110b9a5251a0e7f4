"""Names files, splits and classes, lists reasons for rejects, and computes digests."""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

FORMAT_VERSION = 2  # the version of manifest.json and of everything under .beam_tfr/

# Files of a dataset next to its shards.
EXPORT_FILE = "export.json"  # describes an export of a dataset
# The <database> in the <source> of an exported Pascal VOC file: its pixels count from 1.
VOC_DATABASE = "beam_tfr"
MANIFEST_FILE = "manifest.json"
LABELS_FILE = "labels.txt"
REJECTS_FILE = "rejects.jsonl"
CONTENTS_FOLDER = "contents"  # a table of contents for each shard: see `records.contents`
# SHA-256 of the contents, as `sha256sum --check` reads it. Not in the folder of the contents, where
# Parquet readers read each file as a table.
SUMS_FILE = "contents.sha256"
REMOVED_FILE = (
    "removed.txt"  # hashes of images taken down; no conversion into the folder removes it
)
HISTORY_FILE = "history.jsonl"  # lists updates; no digest covers it or the files below
# Files for other programs: see `dataset.metadata`. README.md may also belong to the user.
SCHEMA_FILE = "schema.pbtxt"
CROISSANT_FILE = "croissant.json"
CARD_FILE = "README.md"
REPORT_FILE = "report.html"
TFDS_FILES = (
    "dataset_info.json",
    "features.json",
    "image.class.label.labels.txt",
    "class.label.labels.txt",
)
METADATA_FILES = (SCHEMA_FILE, CROISSANT_FILE, CARD_FILE, *TFDS_FILES)
SOURCES_FOLDER = ".sources"  # what each shard was made from, for updates: see `output.sidecars`
WORK_FOLDER = (
    ".beam_tfr"  # plan, lock, sidecars and unfinished files; removed when the dataset is complete
)
# In the work folder: the dataset before copies are grouped or dropped, see `launch.settling`.
FIRST_FOLDER = "first"
SWITCH_FILE = "switch.json"  # in the work folder, while files are moved into place

MOST_CLASS_LETTERS = 1_000  # characters in the name of a class
MOST_SHARDS = 100_000  # the manifest then has 20 MB, and every reader parses it
NO_SPLIT = "none"  # the split of images that belong to none: rejects only, no records
TRAIN = "train"
_SPLIT_RANKS = {TRAIN: 0, "validation": 1, "test": 2}

# Why an image is not in the dataset. A closed list, so that rejects can be counted and compared.
REJECT_REASONS: dict[str, str] = {
    "bad-value": "a value in the table is missing, does not match the type of its column, or is "
    "in a row or a file that cannot be read",
    "layout-mismatch": "the key does not have the parts that --layout names",
    "unknown-class": "the class is not in the file that --classes names",
    "without-boxes": "no box is stored, with --no_boxes reject",
    "not-an-array": "the content is not a .npy array of numbers or strings",
    "damaged-array": "the .npy array has more or fewer bytes than its header says",
    "not-found": "the file was listed but does not exist",
    "changed-while-reading": "the object was replaced, or the file changed, after it was listed",
    "unreadable": "the file cannot be read now but may be later; only with --accept_unreadable",
    "unusable-file": (
        "not a regular file, a loop of links, stored as gzip but not gzip data, or unusable in an "
        "archive"
    ),
    "empty-file": "the file has no bytes",
    "not-an-image": "the content is not in a known image format",
    "damaged-image": "the content is in an image format but cannot be decoded to the end",
    "unsupported-image": "no installed decoder reads this kind of image",
    "too-many-pixels": "the image, or the result, has more pixels than allowed",
    "masks-too-large": "the masks of its boxes have more pixels to process, or need more bytes, "
    "than allowed",
    "too-much-memory": "decoding takes more memory than --max_decode_bytes",
    "too-many-scans": "a progressive JPEG with so many scans that decoding would take minutes",
    "taken-down": "has the same bytes as an image that `beam-tfr remove` took down",
    "duplicate": "a copy of another image that has more pixels or, with equally many, a smaller "
    "key; only with --duplicates drop",
    "left-out": "one of your own steps left the image out; the detail says why",
    "too-few-pixels": "smaller than --min_pixels",
    "extreme-aspect": "longer and thinner than --max_aspect or the encoding allows",
    "several-frames": "an animation or a multi-page file, with --frames reject",
    "decode-timeout": "took longer than the hard limit on CPU time",
    "crashed-decoder": "crashed the guarded process that decoded it",
    "file-too-large": "the file is larger than allowed",
}

# Noteworthy changes to images. Also a closed list, counted in the manifest.
ADJUSTMENTS: dict[str, str] = {
    "wrong-extension": "the file name has the extension of another format",
    "rotated": "rotated or mirrored according to EXIF",
    "first-frame": "only the first of several frames or pages was used",
    "alpha-composited": "transparent pixels were blended with --background",
    "alpha-doubtful": (
        "TIFFs whose fourth band is marked as transparency, but most pixels are neither opaque nor "
        "transparent: it may be near infrared, which GDAL marks like this; in Python, "
        "`tifffile.imwrite(NEW, tifffile.imread(FILE)[..., :3])` leaves the band out"
    ),
    "band-left-out": (
        "TIFFs with RGB and a fourth band, such as near infrared, which was left out because no "
        "tag marks it as transparency"
    ),
    "depth-scaled": "more than 8 bits per sample were scaled to 8",
    "nearly-black": (
        "more than 8 bits per sample, but the largest value is at most a quarter of the range, "
        "such as 4,095 of 65,535: multiply them first, 12 bits in files of 16 by `mogrify "
        "-evaluate multiply 16 FILES`, or leave them if they are meant to be dark"
    ),
    "nearly-white": (
        "TIFFs in which 0 is white, with more than 8 bits per sample, but the largest value is at "
        "most a quarter of the range: multiply them first, 12 bits in files of 16 by `mogrify "
        "-negate -evaluate multiply 16 -negate FILES`, or leave them if they are meant to be bright"
    ),
    "cmyk-converted": "CMYK was converted to RGB",
    "profile-converted": "an embedded color profile other than sRGB was converted",
    "profile-ignored": "an embedded color profile could not be used",
    "aspect-changed": "stretched by more than 1.2 in one direction",
    "cropped": "lost more than half of their area",
    "boxes-repeated": (
        "have a box more than once, with the same class, as if annotations were joined twice: all "
        "are stored"
    ),
    "boxes-clipped": "have boxes that extend beyond the stored image",
    "boxes-dropped": "lost boxes that kept less than --min_visible of their area",
    "bad-boxes-dropped": (
        "had boxes that have no area, lie outside the image, or are not four finite numbers"
    ),
    "pair-scaled": "their mask, or another image of a pair, was scaled to their size: [scale]",
    "pair-gray": (
        "their mask, or another image of a pair, has equal color channels, and was read as gray"
    ),
    "pair-missing": "had no mask, or lacked an image of a pair: [optional]",
    "margins-in-mask": (
        'their mask also has the value of its margins: fine if it means "ignore", else set '
        "a different value in the brackets, such as [254]"
    ),
    "no-boxes": "background, or lost all their boxes",
    "enlarged": "have more rows or columns than the source",
    "re-encoded": "with --encoding keep: the original bytes could not be kept",
    "damage-kept": "a damaged JPEG, with --damaged keep",
    "padding-ignored": (
        "a JPEG with a few stray bytes in its header or before its end, otherwise sound"
    ),
}


def sort_splits(splits: Iterable[str]) -> list[str]:
    """Sorts names of splits: train, validation, test, then the others by name."""
    return sorted(splits, key=lambda name: (_SPLIT_RANKS.get(name, len(_SPLIT_RANKS)), name))


def name_folds(number: int) -> list[str]:
    """Names the splits of `folds=`, with equally many digits, so that they sort correctly."""
    digits = len(str(number - 1))
    return [f"fold{fold:0{digits}}" for fold in range(number)]


def shares_of(options: Mapping[str, Any]) -> dict[str, Fraction]:
    """Returns split -> its share of the images, in the usual order, or {} if no shares are set.

    Args:
        options: the options of a conversion, or those in a manifest.
    """
    folds = options.get("folds")
    if folds:
        return dict.fromkeys(name_folds(folds), Fraction(1, folds))
    shares = options.get("splits") or {}
    return {name: Fraction(shares[name]) for name in sort_splits(shares)}


def is_class_name(text: object) -> bool:
    """Whether a string can be a line of labels.txt.

    It must have no control characters, line ends, lone surrogates, or spaces at its ends, and at
    most `MOST_CLASS_LETTERS` characters, because each image and each box repeats it.
    """
    return (
        isinstance(text, str)
        and len(text) <= MOST_CLASS_LETTERS
        and text.splitlines() == [text]
        and text == text.strip()
        and not text.startswith("\ufeff")  # readers of text files drop a byte order mark
        and not any(unicodedata.category(char) in ("Cc", "Cs") for char in text)
    )


def sha256_hex(data: bytes) -> str:
    """Returns the SHA-256 of bytes as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


class RecordsDigest:
    """The SHA-256 of uncompressed records, each preceded by its length (8 bytes, little-endian)."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def add(self, record: bytes) -> None:
        self._sha256.update(len(record).to_bytes(8, "little"))
        self._sha256.update(record)

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


def canonical_json(value: Any) -> bytes:
    """Returns a value as canonical JSON: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_digest(value: Any) -> str:
    """Returns the SHA-256 of a value's canonical JSON."""
    return sha256_hex(canonical_json(value))
