"""Chooses how many records readers shuffle together, based on the memory that the records take."""

import contextlib
import logging
import struct
from collections.abc import Iterable

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import ShardPart

# Records of a stream that are shuffled together: 8 streams mix like a shuffle buffer of 2,048.
WINDOW = 256
WINDOW_BYTES = 512 << 20  # 512 MiB: expected memory of the records in the windows of all streams
MOST_WINDOW_BYTES = 2 * WINDOW_BYTES
TOO_LARGE = (
    " are too large: together with those of the other streams, they take more than 1 GiB of "
    "memory. `beam-tfr verify` shows their sizes; `Records` reads each record by itself"
)
_LENGTH = struct.Struct("<I")  # the end of a gzip file: length of its content, modulo 2^32
_logger = logging.getLogger(__name__)


def choose_window(dataset: Manifest, parts: Iterable[ShardPart], streams: int) -> int:
    """Returns how many records of a stream are shuffled together: `WINDOW`, or fewer large records.

    Args:
        dataset: the dataset.
        parts: the selected parts of the dataset's shards, at least one.
        streams: number of streams.
    """
    heaviest = sorted(parts, key=_record_bytes, reverse=True)
    ratio = _inflation(dataset, heaviest[0])
    window = WINDOW
    while window > 1 and ratio * _most_bytes(heaviest, window * streams) > WINDOW_BYTES:
        window //= 2
    if window < WINDOW:
        _logger.info(
            "%s has large records, so %d instead of %d are shuffled together",
            dataset.folder,
            window * streams,
            WINDOW * streams,
        )
    return window


def _record_bytes(part: ShardPart) -> float:
    """Returns the mean size of a record in the file of a part."""
    return part.num_bytes / part.records


def _most_bytes(parts: Iterable[ShardPart], records: int) -> float:
    """Returns the size, in files, of a number of records that are taken from the first parts."""
    num_bytes = 0.0
    for part in parts:
        taken = min(records, part.take)
        num_bytes += taken * _record_bytes(part)
        records -= taken
        if not records:
            break
    return num_bytes


def _inflation(dataset: Manifest, part: ShardPart) -> float:
    """Returns the ratio of the size of a part's records in memory to their size in the file."""
    if not dataset.gzip_level:  # neither gzip nor stored blocks shrink records
        return 1.0
    begin = max(0, part.num_bytes - _LENGTH.size)
    # Reading the records reports damage. All hosts must choose the same window, so that a network
    # error of one host is raised.
    with contextlib.suppress(FileNotFoundError, struct.error):
        (length,) = _LENGTH.unpack(storage.read_part(part.file, begin, _LENGTH.size))
        return float(max(1.0, length / part.num_bytes))
    return 1.0
