"""Converts a sample, and measures time and sizes."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import posixpath
import time
import zlib
from collections.abc import Callable, Sequence

from beam_tfr.bench import forget
from beam_tfr.console.display import Progress
from beam_tfr.inputs.reading import make_record, read_refs
from beam_tfr.pipeline import Convert
from beam_tfr.planning.drafts import FRAME_BYTES
from beam_tfr.preview.speed import Speed, measure_speed
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema import ImageRef, RejectError
from beam_tfr.schema.features import IMAGE_ENCODINGS

MAX_SAMPLE_BYTES = 256 << 20  # 256 MiB of files


@dataclasses.dataclass
class Sampled:
    """The result of converting a sample.

    Attributes:
        tried: number of references.
        record_bytes: framed size of each record.
        cpu_s: CPU seconds to convert each, alone on the machine.
        packed: compressed size of the records, relative to their own.
        read_s: seconds to read one file.
        reasons: reason -> rejects.
        details: reason -> an example: its key, and what is wrong.
        adjusted: name of an adjustment -> images.
        speed: speed of conversions; None unless images are converted.
    """

    tried: int = 0
    record_bytes: list[float] = dataclasses.field(default_factory=list, repr=False)
    cpu_s: list[float] = dataclasses.field(default_factory=list, repr=False)
    packed: float = 1.0
    read_s: float = 0.0
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    adjusted: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    speed: Speed | None = None


def convert_sample(
    refs: Sequence[ImageRef], step: Convert, *, of: int, progress: Callable[[Progress], object] = lambda _: None
) -> Sampled:
    """Reads and converts a sample (`of` so many references) like `step`; writes only to a temporary folder."""
    options, root, found = step.options, step.read.root, Sampled()
    steps = [part.fn for part in step.make]
    files: list[tuple[str, bytes]] = []
    shard = zlib.compressobj(gzip_level(**options.stored_compression, encoding=options.encoding) or 0)
    packed = 0
    sizes = itertools.accumulate(ref.size_bytes for ref in refs)
    refs = [ref for ref, size in zip(refs, sizes, strict=True) if size <= MAX_SAMPLE_BYTES] or refs[:1]
    for ref in refs:
        forget(root + ref.key)
    started = time.perf_counter()
    for ref, content in read_refs(root, refs, step.read.ahead):
        found.read_s += time.perf_counter() - started
        found.tried += 1
        progress(Progress("sampling", found.tried, len(refs)))
        cpu_s = time.thread_time()
        try:
            record = make_record(content, ref, steps)
        except RejectError as error:
            found.reasons[error.reason] += 1
            found.details.setdefault(error.reason, f"{ref.key} ({error.detail})")
            started = time.perf_counter()
            continue
        found.cpu_s.append(time.thread_time() - cpu_s)
        found.record_bytes.append(len(record.serialized) + FRAME_BYTES)
        packed += len(shard.compress(record.serialized))
        if record.image is not None:
            found.adjusted.update(record.image.adjusted)
        if isinstance(content, bytes):
            files.append((posixpath.splitext(ref.key)[1], content))
        started = time.perf_counter()
    if step.read.ahead is not None:
        step.read.ahead.close()
    found.read_s /= max(1, found.tried)
    if found.record_bytes:
        found.packed = (packed + len(shard.flush())) / sum(found.record_bytes)
        if options.encoding in IMAGE_ENCODINGS:
            alone_s = sum(found.cpu_s) / len(found.cpu_s)
            found.speed = measure_speed(files, options, alone_s=alone_s, most=of, progress=progress)
    return found
