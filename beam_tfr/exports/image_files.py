"""Shares code between formats with one file per image.

For each shard, a file in the work folder, its part, has a line of JSON for each image, with the
names of the image's files and what the format says about the image. At the end, the files that
describe all images are made from the parts.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.exports.image_names import CURE
from beam_tfr.exports.shard import ExportedSample, ExportedShard
from beam_tfr.records.repeats import hash_key
from beam_tfr.schema.dataset import WORK_FOLDER
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.naming import parse_shard_names

PLACE = f"{WORK_FOLDER}/{{name}}-{{shard}}.jsonl"  # the path of a part


class ImageFiles(NamedTuple):
    """The files of an image.

    Attributes:
        files: path in the export -> content.
        about: what the format says about the image, as JSON values.
    """

    files: Mapping[str, bytes]
    about: Any


def write_files(
    shard: ExportedShard,
    file: storage.PendingFile,
    describe: Callable[[ExportedShard, ExportedSample], ImageFiles],
) -> None:
    """Writes the image files of a shard, and its part.

    Args:
        shard: the shard.
        file: the part.
        describe: function that returns the files of an image.
    """

    def write_image(sample: ExportedSample) -> bytes:
        image = describe(shard, sample)
        for path, data in image.files.items():
            _write_file(shard.output, path, data)
        line = json.dumps([[*image.files], image.about])
        return line.encode() + b"\n"

    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        for samples in shard.samples():
            file.write(b"".join(pool.map(write_image, samples)))


def _write_file(output: str, path: str, data: bytes) -> None:
    place = storage.join(output, path)
    storage.make_folder(place.rpartition("/")[0])
    storage.write_bytes(place, data, scratch=storage.work_path(output, ""))


def group_parts(paths: Iterable[str]) -> dict[str, list[str]]:
    """Groups parts by split; returns split -> parts."""
    parts_of = dict[str, list[str]]()
    for path in paths:
        split = parse_shard_names(path).split
        parts_of.setdefault(split, []).append(path)
    return parts_of


def read_parts(paths: Iterable[str]) -> Iterator[tuple[list[str], Any]]:
    """Yields the file names of each image, and what the format says about the image."""
    for path in paths:
        with storage.open_binary(path) as lines:
            yield from map(json.loads, lines)


def read_checked_parts(output: str, paths: Iterable[str]) -> Iterator[Any]:
    """Yields what the format says about each image, and then checks the files.

    For each name, holds a hash in memory, which takes about 100 bytes.

    Raises:
        DataError: two files have the same name, or a file was removed after it was written.
    """
    names = set[bytes]()  # hashed
    for files, about in read_parts(paths):
        for name in files:
            hashed = _hash_name(name)
            if hashed in names:
                raise DataError(
                    f"{storage.join(output, name)}: two images would have this name, or an image "
                    f"and the mask of another, such as KEY.mask.png; {CURE}"
                )
            names.add(hashed)
        yield about
    for entry in storage.walk(output, lambda _: True):
        names.discard(_hash_name(entry.path.removeprefix(f"{output}/")))
    if names:
        raise DataError(
            f"{len(names):,} files of finished shards are no longer in {output}: empty the folder, "
            "and run the same command again"
        )


def _hash_name(name: str) -> bytes:
    return hash_key(name.encode("utf-8", "surrogateescape"))


def write_text(output: str, name: str, texts: Iterable[str]) -> None:
    """Writes a file of an export from pieces of text."""
    path = storage.join(output, name)
    storage.make_folder(path.rpartition("/")[0])
    with storage.create(path, scratch=storage.work_path(output, "")) as file:
        for text in texts:
            file.write(text.encode())
        file.commit()
