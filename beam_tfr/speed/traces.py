"""Records what threads do while images are read, for TensorBoard and Perfetto.

TensorFlow's profiler writes an XSpace, as defined in
https://github.com/openxla/xla/blob/main/third_party/tsl/tsl/profiler/protobuf/xplane.proto, which
TensorBoard's profile plug-in shows. Next to it, `trace` writes the same data in the Trace Event
Format, which Perfetto (https://ui.perfetto.dev) and chrome://tracing read:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import glob
import gzip
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from beam_tfr.speed.turns import named_errors, read_images
from beam_tfr.speed.ways import Way

MOST_TRACED = 256  # images per method, with about a thousand events each
_SPACES = "plugins/profile/*/*.xplane.pb"


def trace(ways: Sequence[Way], folder: str) -> str:
    """Traces each method for some batches; returns the path of the file for Perfetto.

    Each method is ended before the next method is started, so that no method reads ahead while
    another is traced.

    Raises:
        DataError: a file cannot be read.
    """
    before = {*glob.glob(f"{glob.escape(folder)}/{_SPACES}")}
    tf.profiler.experimental.start(folder)
    try:
        for way in ways:
            _trace_way(way)
    finally:
        tf.profiler.experimental.stop()
    (space,) = {*glob.glob(f"{glob.escape(folder)}/{_SPACES}")} - before
    return _write_events(space)


def _trace_way(way: Way) -> None:
    with named_errors():
        batches = way.start()
        next(batches)
        with tf.profiler.experimental.Trace(way.name):
            read_images(batches, MOST_TRACED)


def _write_events(path: str) -> str:
    """Writes the events in an XSpace next to it, in the Trace Event Format; returns the path."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with open(path, "rb") as file:
        space = xplane_pb2.XSpace.FromString(file.read())
    target = f"{path.removesuffix('.xplane.pb')}.trace.json.gz"
    partial = f"{target}.partial"
    with gzip.open(partial, "wt", encoding="utf-8") as events:
        events.write('{"displayTimeUnit": "ms", "traceEvents": [')
        for number, event in enumerate(_events(space)):
            events.write(",\n" if number else "")
            json.dump(event, events)
        events.write("]}")
    os.replace(partial, target)
    return target


def _events(space: Any) -> Iterator[dict[str, Any]]:
    """Yields events, with one process for each plane and one thread for each line."""
    for process, plane in enumerate(space.planes):
        yield _name_event("process_name", process, 0, plane.name)
        names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
        for thread, line in enumerate(plane.lines):  # ids of lines are too large for some viewers
            yield _name_event("thread_name", process, thread, line.name or str(line.id))
            for event in line.events:
                yield {
                    "ph": "X",
                    "pid": process,
                    "tid": thread,
                    "ts": line.timestamp_ns / 1e3 + event.offset_ps / 1e6,
                    "dur": event.duration_ps / 1e6,
                    "name": names[event.metadata_id],
                }


def _name_event(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
