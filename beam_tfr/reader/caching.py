"""What remembers the records of a stream, or its decoded images, from epoch to epoch."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from beam_tfr import storage
from beam_tfr.checks import boolean
from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.layout import Layout
from beam_tfr.reader.streams import WINDOW
from beam_tfr.schema import UsageError, canonical_json, sha256_hex

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_OVERHEAD_BYTES = 200  # of a record in memory, besides its bytes


def memory_of(cache: Any, cache_decoded: Any, decoder: Decoder, layout: Layout) -> Callable[[Any, int], Any] | None:
    """What `Streams.remember` is for these arguments of `load`.

    Raises:
        UsageError: they are wrong, do not fit the others, or there is not room enough.
    """
    boolean("cache_decoded", cache_decoded)
    if cache is False:
        if cache_decoded:
            raise UsageError('cache_decoded has no effect without cache: give cache="memory" or a folder')
        return None
    if not isinstance(cache, (str, os.PathLike)) or not os.fspath(cache):
        raise UsageError(f'cache must be False, "memory" or a folder on a local disk, not {cache!r}')
    folder = os.fspath(cache)
    if storage.is_gcs(folder):
        raise UsageError(f"cache {folder}: only a local disk is faster than reading again")
    if cache_decoded and decoder.ragged:
        raise UsageError("cache_decoded: the examples hold lists of any length. Leave it out: records are remembered")
    if cache_decoded and (decoder.output in ("encoded", "raw_record") or decoder.variable):
        what = "images have different sizes" if decoder.variable else f'output="{decoder.output}" decodes nothing'
        raise UsageError(f"cache_decoded: {what}. Leave it out: the records are remembered then")
    if cache_decoded and decoder.image.crop == "random":
        raise UsageError('cache_decoded would give every epoch the same parts of crop="random": leave one of them out')

    needed = estimated_bytes(decoder, layout, decoded=cache_decoded)
    if folder == "memory":
        _check_room(needed, free_memory_bytes(), "of memory are free", cure="a folder, or more hosts")
        path = ""
    else:
        try:
            os.makedirs(folder, exist_ok=True)
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise UsageError(f"cache {folder} cannot be made a folder: {error.strerror}") from None
        # tf.data takes any file of that name for its own: another dataset, split or deal has other names.
        digest = sha256_hex(
            canonical_json(
                [decoder.dataset.dataset_digest, decoder.selection.text, layout.streams, WINDOW, decoder.max_skipped]
                + ([decoder.output, decoder.image.image_size, decoder.image.crop] if cache_decoded else [])
            )
        )
        path = os.path.join(folder, f"beam_tfr-{digest[:16]}")
        _clear_unfinished(path, layout)
        have = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.path.startswith(path))
        _check_room(needed - have, free, f"are free in {folder}", cure="another folder, or more hosts")

    def remember(windows: Any, stream: int) -> Any:
        if cache_decoded:
            windows = windows.map(
                lambda records, numbers: (
                    *decoder.decode(records, tf.stack([tf.zeros_like(numbers), numbers], axis=1)),
                    numbers,
                ),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
        return _in_files(windows, f"{path}-{stream:05d}-of-{layout.streams:05d}") if path else windows.cache()

    return remember


def _in_files(windows: Any, path: str) -> Any:
    """The windows, remembered in files that begin so; as they are as long as another iterator fills these files, which
    tf.data refuses.
    """
    remembered = windows.cache(path)

    def filled_by_another() -> bool:
        return os.path.exists(f"{path}_0.lockfile") and not os.path.exists(f"{path}.index")

    def one_of_them(_: Any) -> Any:
        variant = tf.cond(  # only of the one that is taken there will be an iterator: the other would remove the files
            tf.numpy_function(filled_by_another, [], tf.bool),
            lambda: tf.data.experimental.to_variant(windows),
            lambda: tf.data.experimental.to_variant(remembered),
        )
        return tf.data.experimental.from_variant(variant, windows.element_spec)

    return tf.data.Dataset.from_tensors(0).flat_map(one_of_them)


_held: dict[str, Any] = {}  # the locks of this process, open as long as it lives


def _clear_unfinished(path: str, layout: Layout) -> None:
    """Removes what a process that died while it filled the cache has left of this host's streams: tf.data would wait
    for that process, in vain.
    """
    lock = f"{path}-host-{layout.host_index:05d}-of-{layout.num_hosts:05d}.lock"
    if fcntl is None or lock in _held:
        return
    file = open(lock, "w")  # noqa: SIM115 - held until the process ends
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a process that lives is at it
        file.close()
        return
    _held[lock] = file
    for stream in range(layout.host_index, layout.streams, layout.num_hosts):
        prefix = f"{path}-{stream:05d}-of-{layout.streams:05d}"
        if not os.path.exists(f"{prefix}.index"):
            for left in glob.glob(f"{glob.escape(prefix)}*"):
                os.remove(left)


def estimated_bytes(decoder: Decoder, layout: Layout, *, decoded: bool) -> int:
    """What the share of one host takes, about: images of one size decoded or raw, else the bytes of the shards."""
    height, width, channels = (
        decoder.image.shape if decoded else (*decoder.image.options.image_size, decoder.image.channels)
    )
    if decoder.holds_images and (decoded or decoder.image.options.encoding == "raw"):
        each = (height or 0) * (width or 0) * channels
    else:
        splits = decoder.selection.splits
        each = sum(split.num_bytes for split in splits) // max(1, sum(split.num_examples for split in splits))
    return (each + _OVERHEAD_BYTES) * layout.total // layout.num_hosts


def free_memory_bytes() -> int:
    """What this process may still take: of the machine, or of its control group."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        free = int(fields["MemAvailable"].split()[0]) << 10
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as current:
            free = min(free, int(limit.read()) - int(current.read()))
    except (OSError, KeyError, ValueError):  # not Linux, or no limit
        pass
    return free


def _check_room(needed: int, free: int, where: str, *, cure: str) -> None:
    if needed > free:
        raise UsageError(
            f"cache: this host's share takes about {needed:,} bytes, and {free:,} {where}. Give cache=False, {cure}"
        )
