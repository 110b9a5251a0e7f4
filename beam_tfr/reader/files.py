"""`load_records`: the records of any TFRecord files, complete or with an error that names the file.

    files ──interleave──▶ chunks of records, each file's counted and closed by a check ──unbatch──▶ records

TensorFlow's own errors name no file, and a gzip file that is cut off in certain places ends without an error. So the
size of the records that came is compared with the file's size, or for gzip with the size in its last four bytes. If
they differ, the file is read again in plain Python to find out what is wrong.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr import storage
from beam_tfr.inputs.listing import list_images
from beam_tfr.reader_arguments import integer
from beam_tfr.records import MAX_RECORD_BYTES, RecordError, RecordFile, masked_crc
from beam_tfr.schema import UsageError

_CHUNK = 64  # records that are counted in one call
_FRAME_BYTES = 16  # of a record: its length and two checksums
_GZIP_MAGIC = b"\x1f\x8b\x08"
_HEAD_BYTES = 12  # length of the first record and its checksum
# The heads of bare files that look like gzip, because the length of their first record has those bytes.
_BARE_HEADS = [
    length + struct.pack("<I", masked_crc(length))
    for length in (
        struct.pack("<Q", number)
        for number in range(int.from_bytes(_GZIP_MAGIC, "little"), MAX_RECORD_BYTES, 1 << 8 * len(_GZIP_MAGIC))
    )
]


def load_records(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, streams: int = 1) -> Any:
    """Reads TFRecord files of any origin, bare or gzip; the content of each file tells which.

    Args:
        paths: files or patterns, local or gs://, one or several; patterns are those of `convert`: `*` any name, `**/`
            any number of folders, `?`, `[abc]`, `{a,b}`. Files come in the order of `paths`, those of a pattern
            sorted, each once.
        streams: files to read side by side, 64 records of each in turn: faster where reading waits, as from gs://, but
            another order. With 1, file after file.

    Returns:
        A `tf.data.Dataset` of scalar strings: the bytes of each record, nothing lost.

    Raises:
        UsageError: a path or pattern matches no file, or an argument is wrong.

    Iterating raises tf.errors.InvalidArgumentError that names file, record and byte where a file is damaged, and
    tf.errors.NotFoundError for a file that has disappeared.
    """
    entries = _list(paths)
    streams = integer("streams", streams, 1, bits=10)
    build = tf.autograph.experimental.do_not_convert(_build)
    with tf.device("CPU"):  # tensors that tf.data's functions can reach, on a machine with a GPU too
        return build(entries, streams)


def _list(paths: Any) -> dict[str, int]:
    """The size of each file in bytes, by its path."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise UsageError("is empty: give a file or pattern, or several", option="paths")
    found: dict[str, int] = {}
    for path in given:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise UsageError("must be files or patterns", option="paths", value=repr(path))
        pattern = storage.check_path(os.fspath(path), option="paths")
        for entry in sorted(list_images(pattern, option="paths")):
            found.setdefault(entry.path, entry.size_bytes)
    return found


def _build(entries: dict[str, int], streams: int) -> Any:
    files = tf.constant([*entries], tf.string), tf.constant([*entries.values()], tf.int64)
    chunks = tf.data.Dataset.from_tensor_slices(files).interleave(
        _chunks,
        cycle_length=streams,
        num_parallel_calls=streams,
        deterministic=True,
    )
    return chunks.unbatch().prefetch(tf.data.AUTOTUNE)


def _chunks(file: Any, size: Any) -> Any:
    """The records of a file, string [n], then an empty chunk if nothing is missing, else an error."""
    # `ignore_errors` would look for a file that is not there for ever: this raises NotFoundError.
    head = tf.data.FixedLengthRecordDataset(file, 1).take(_HEAD_BYTES).batch(_HEAD_BYTES).map(tf.strings.reduce_join)

    def records(head: Any) -> Any:
        gzip = tf.equal(tf.strings.substr(head, 0, len(_GZIP_MAGIC)), _GZIP_MAGIC)
        gzip &= ~tf.reduce_any(tf.equal(head, _BARE_HEADS))
        chunks = tf.data.TFRecordDataset(file, tf.where(gzip, "GZIP", "")).ignore_errors().batch(_CHUNK)
        end = tf.data.Dataset.from_tensors(tf.constant([], tf.string))

        def count(read: tuple[Any, Any], chunk: Any) -> Any:
            number, bytes_read = read
            number += tf.size(chunk, tf.int64)
            bytes_read += tf.reduce_sum(tf.cast(tf.strings.length(chunk), tf.int64) + _FRAME_BYTES)
            with tf.control_dependencies([tf.cond(tf.size(chunk) > 0, tf.no_op, lambda: close(number, bytes_read))]):
                return (number, bytes_read), tf.identity(chunk)

        def close(number: Any, bytes_read: Any) -> Any:
            told = tf.cond(gzip, lambda: _gzip_size(file, size), lambda: size)
            # Zeros at the end of a gzip file may be of its content, cut off within the first record.
            whole = tf.equal(told, tf.where(gzip, bytes_read % (1 << 32), bytes_read)) & ((number > 0) | ~gzip)
            return tf.cond(whole, tf.no_op, lambda: _refuse(file, number))

        nothing = tf.constant(0, tf.int64)
        return chunks.concatenate(end).scan((nothing, nothing), count)

    return head.flat_map(records)


def _gzip_size(file: Any, size: Any) -> Any:
    """The size of the content, modulo 2^32, that a gzip file's end states; of the last member if it has several."""
    tail = tf.data.FixedLengthRecordDataset(file, 4, header_bytes=tf.maximum(size - 4, 0)).take(1)
    none = tf.data.Dataset.from_tensors(bytes(4))
    tail = tf.where(size >= 4, tail.concatenate(none).take(1).get_single_element(), bytes(4))
    return tf.cast(tf.bitcast(tf.io.decode_raw(tail, tf.uint8), tf.uint32), tf.int64)


def _refuse(file: Any, number: Any) -> Any:
    """Raises unless a file holds exactly `number` records."""
    problem = tf.numpy_function(_problem, [file, number], tf.string)
    return tf.raw_ops.Assert(condition=tf.equal(problem, ""), data=[problem])


def _problem(file: bytes, number: np.int64) -> bytes:
    """What is wrong with a file of which `number` records could be read; empty if nothing is (several members)."""
    records = RecordFile(os.fsdecode(file))
    try:
        for _ in records:
            pass
    except (RecordError, OSError) as error:
        return f"damaged file {error}".encode(errors="replace")
    if records.record != number:
        return f"{records.path}: only {number} of its {records.record} records could be read; try again".encode()
    return b""
