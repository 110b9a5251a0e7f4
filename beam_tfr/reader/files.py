"""Reads the records of any TFRecord files, as `load_records`; errors mention the file.

    files ──interleave──▶ chunks of records, read by `records.tfrecords` ──unbatch──▶ records

TensorFlow's own reader treats some truncated gzip files as complete, and its errors mention no
file.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from beam_tfr import storage
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.inputs.listing import match_files
from beam_tfr.records.tfrecords import MAX_RECORD_BYTES, RecordError, RecordFile
from beam_tfr.schema.arguments import public
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.untrusted import quote

_CHUNK = 64  # records that Python hands to TensorFlow in one call


@public
def load_records(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    streams: int = 1,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Any:
    """Reads any TFRecord files; detects from their content whether gzip compressed them.

    Args:
        paths: one or more files or patterns, local or gs://. Patterns are written as for `convert`:
            `*` matches any name, `**/` any number of folders; `?`, `[abc]` and `{a,b}` are allowed
            too. Files are read in the order of `paths`, and files that match the same pattern in
            sorted order; each file is read once.
        streams: number of files to read in parallel, 64 records at a time from each. A larger
            number is faster on gs://, but changes the order. With 1, files are read one after
            another.
        max_record_bytes: longer records count as damage. Each open file takes up to three times
            this much memory.

    Returns:
        A `tf.data.Dataset` of scalar strings: the bytes of each record.

    Raises:
        UsageError: a path or pattern matches no file, or an argument is wrong.

    Iterating raises tf.errors.InvalidArgumentError, which mentions file, record and byte, where a
    file is damaged, and tf.errors.NotFoundError for a file that has disappeared.
    """
    files = _list_paths(paths)
    streams = check_integer("streams", streams, 1, bits=10)
    longest = check_integer("max_record_bytes", max_record_bytes, 0)

    def load_chunks(file: Any) -> Any:
        return _load_chunks(file, longest)

    # Puts tensors where tf.data's functions can reach them, even on a machine with a GPU.
    with tf.device("CPU"):
        # File names may contain any bytes.
        all_files = tf.data.Dataset.from_tensor_slices([*map(os.fsencode, files)])
        chunks = all_files.interleave(
            load_chunks, cycle_length=streams, num_parallel_calls=streams, deterministic=True
        )
        return chunks.unbatch().prefetch(tf.data.AUTOTUNE)


def _list_paths(patterns: Any) -> list[str]:
    """Lists the paths of the files, without repeats."""
    if isinstance(patterns, (str, os.PathLike)):
        patterns = [patterns]
    paths: dict[str, None] = {}
    for pattern in patterns:
        if pattern == "":
            raise UsageError("must be files or patterns", option="paths", value=quote(pattern))
        path = storage.check_path(pattern, option="paths")
        entries = sorted(match_files([(path, ())], option="paths"))
        paths |= dict.fromkeys(entry.path for entry in entries)
    if not paths:
        raise UsageError("is empty; specify one or more files or patterns", option="paths")
    return [*paths]


def _load_chunks(file: Any, longest: int) -> Any:
    """Loads the records of a file, string [n]; fails with NotFoundError if the file is gone."""
    first_byte = tf.data.FixedLengthRecordDataset(file, 1).take(1)
    existing = first_byte.skip(1).batch(1)
    signature = tf.TensorSpec([None], tf.string)
    records = tf.data.Dataset.from_generator(
        _read_chunks, args=[file, longest], output_signature=signature
    )
    return existing.concatenate(records)


def _read_chunks(file: bytes, longest: int) -> Iterator[list[bytes]]:
    """Yields the records of a file in chunks.

    Raises errors that TensorFlow turns into InvalidArgumentError.
    """
    path = os.fsdecode(file)
    records = iter(RecordFile(path, max_record_bytes=int(longest)))
    try:
        while True:
            chunk = list(itertools.islice(records, _CHUNK))
            if not chunk:
                return
            yield chunk
    except RecordError as error:
        raise ValueError(f"damaged file {error}") from None
