"""Makes and parses the names of shards and their files.

File names look like `flowers-train-00003-of-00016.tfrecord.gz`; shards are numbered as in Beam's
own sinks.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from beam_tfr.schema.dataset import CONTENTS_FOLDER

NAME = re.compile("[A-Za-z0-9_]+")  # the name of a dataset or a split
SUFFIXES = {"gzip": ".tfrecord.gz", "none": ".tfrecord"}  # compression -> suffix of the files
CONTENTS_SUFFIX = ".parquet"
_NUMBER = "(?:[0-9]{5}|[1-9][0-9]{5,})"
_FILE = re.compile(
    rf"({NAME.pattern})-({NAME.pattern}-{_NUMBER}-of-{_NUMBER})(\.tfrecord(?:\.gz)?)"
)

_PLAIN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?<!\.)")  # neither ".." nor a path


def find_two_spellings(names: Iterable[str]) -> tuple[str, str] | None:
    """Finds two names that look the same but differ in bytes; returns None if there are none.

    One name has composed letters, the other decomposed letters (Unicode NFC and NFD), which may
    happen in folders copied from macOS.
    """
    seen: dict[str, str] = {}
    for name in sorted(names):
        first = seen.setdefault(unicodedata.normalize("NFC", name), name)
        if first != name:
            return first, name
    return None


def shard_name(split: str, number: int, num_shards: int) -> str:
    """Names a shard, such as `train-00003-of-00016`."""
    return f"{split}-{number:05d}-of-{num_shards:05d}"


def file_name(dataset: str, shard: str, suffix: str) -> str:
    """Names the file of a shard, such as `flowers-train-00003-of-00016.tfrecord.gz`."""
    return f"{dataset}-{shard}{suffix}"


def is_plain_name(name: str) -> bool:
    """Whether a name is a valid file name in a work folder, rather than a path."""
    return _PLAIN.fullmatch(name) is not None


def contents_name(file: str) -> str:
    """Names the contents of a shard, such as `contents/flowers-train-00003-of-00016.parquet`."""
    return f"{CONTENTS_FOLDER}/{file.partition('.')[0]}{CONTENTS_SUFFIX}"


def shard_of_file(file: str) -> str:
    """Returns the name of a shard, such as `train-00003-of-00016`, from its file name."""
    return file.partition("-")[2].partition(".")[0]


def split_of_file(file: str) -> str:
    """Returns the split of a shard, such as `train`, from its file name."""
    return shard_of_file(file).partition("-")[0]


def shard_number(file: str) -> int:
    """Returns the number of a shard in its split, from its file name."""
    return int(file.rpartition("-of-")[0].rpartition("-")[2])


def parse_file_name(text: str) -> tuple[str, str, str] | None:
    """Parses the result of `file_name` into its arguments; returns None for any other name."""
    match = _FILE.fullmatch(text)
    return match and (match[1], match[2], match[3])


class ShardNames(NamedTuple):
    """The names in the file name of a shard.

    Attributes:
        dataset: name of the dataset: "flowers".
        shard: name of the shard, without the dataset: "train-00003-of-00016".
        split: "train".
    """

    dataset: str
    shard: str
    split: str


def parse_shard_names(path: str) -> ShardNames:
    """Parses the path of a shard, or of the file that it is exported to."""
    file = path.rpartition("/")[2]
    stem = file.partition(".")[0]
    dataset, _, shard = stem.partition("-")
    return ShardNames(dataset, shard, shard.partition("-")[0])
