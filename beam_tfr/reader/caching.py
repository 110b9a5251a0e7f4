"""Caches records, or decoded images, from one epoch to the next."""

from __future__ import annotations

import fcntl
import glob
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from beam_tfr import storage
from beam_tfr.dataset.reader_arguments import boolean
from beam_tfr.order import WINDOW, Order
from beam_tfr.reader.decode import Decoder
from beam_tfr.schema import UsageError, canonical_json, sha256_hex


def cache_of(cache: Any, cache_decoded: Any, decoder: Decoder, order: Order) -> Callable[[Any], Any] | None:
    """The function `Streams.cache` for these arguments of `load`.

    Raises:
        UsageError: they are wrong, or do not fit the others.
    """
    boolean("cache_decoded", cache_decoded)
    if cache is False:
        if cache_decoded:
            raise UsageError('has no effect without `cache="memory"` or a folder', option="cache_decoded", value=True)
        return None
    if not isinstance(cache, (str, os.PathLike)) or not os.fspath(cache):
        raise UsageError('must be False, "memory" or a folder on a local disk', option="cache", value=repr(cache))
    folder = os.fspath(cache)
    if storage.is_gcs(folder):
        raise UsageError(
            "must be on a local disk; a remote one is not faster than the dataset", option="cache", value=folder
        )
    if cache_decoded:
        _check_decoded(decoder)
    path = ""
    if folder != "memory":
        os.makedirs(folder, exist_ok=True)
        # tf.data takes any file of that name for its own: another dataset, split or host has other names.
        digest = sha256_hex(
            canonical_json(
                [decoder.dataset.dataset_digest, decoder.parts.text, order.streams, WINDOW, decoder.max_skipped]
                + [order.num_hosts, order.host_index]
                + ([decoder.output, decoder.image.image_size, decoder.image.crop] if cache_decoded else [])
            )
        )
        path = os.path.join(folder, f"beam_tfr-{digest[:16]}")
        _clear_unfinished(path)

    def cached_blocks(blocks: Any) -> Any:
        if cache_decoded:
            blocks = blocks.map(
                lambda records, numbers: (
                    *decoder.decode(records, tf.stack([tf.zeros_like(numbers), numbers], axis=1)),
                    numbers,
                ),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
        return _in_files(blocks, path) if path else blocks.cache()

    return cached_blocks


def _check_decoded(decoder: Decoder) -> None:
    for refused, why in (
        (decoder.ragged, "the examples contain lists of varying length"),
        (decoder.variable, "the images have different sizes"),
        (decoder.output in ("encoded", "raw_record"), f'`output="{decoder.output}"` decodes nothing'),
        (decoder.image.crop == "random", 'every epoch would get the same random crops (`crop="random"`)'),
    ):
        if refused:
            raise UsageError(f"{why}. Leave it out to cache the records instead", option="cache_decoded", value=True)


def _in_files(blocks: Any, path: str) -> Any:
    """The blocks, cached in files of that prefix; read from the shards while another iterator fills the files, since
    tf.data allows only one.
    """
    cached = blocks.cache(path)

    def filled_by_another() -> bool:
        return os.path.exists(f"{path}_0.lockfile") and not os.path.exists(f"{path}.index")

    def cached_or_read(_: Any) -> Any:
        variant = tf.cond(  # only of the one that is taken there will be an iterator: the other would remove the files
            tf.numpy_function(filled_by_another, [], tf.bool),
            lambda: tf.data.experimental.to_variant(blocks),
            lambda: tf.data.experimental.to_variant(cached),
        )
        return tf.data.experimental.from_variant(variant, blocks.element_spec)

    return tf.data.Dataset.from_tensors(0).flat_map(cached_or_read)


_open_locks: dict[str, Any] = {}  # the locks of this process, open as long as it lives


def _clear_unfinished(path: str) -> None:
    """Removes files of a process that died while filling the cache, for which tf.data would wait forever."""
    lock = f"{path}.lock"
    if lock in _open_locks:
        return
    file = open(lock, "w")  # noqa: SIM115 - held until the process ends
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process is filling it
        file.close()
        return
    _open_locks[lock] = file
    if not os.path.exists(f"{path}.index"):
        for left in glob.glob(f"{glob.escape(path)}[_.]*"):
            if left != lock:
                os.remove(left)
