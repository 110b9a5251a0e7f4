"""Reports progress to an engine's console with Beam's counters, in the namespace `beam_tfr`.

Updating a counter takes 0.6 µs in a loop, and several times as long between codecs, so counters are
updated once per list of images.
"""

import collections
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from beam_tfr import storage
from beam_tfr.engine import cloud
from beam_tfr.engine.beam_internals import NAMESPACE, worker_options
from beam_tfr.schema.items import Accompanied, Item
from beam_tfr.schema.plan import ShardInfo

SKIPPED_KIND = "skipped-kind-"  # begins the name of a counter
_MOST_KINDS = 10  # counted separately in each part of the input
_counter = functools.cache(functools.partial(Metrics.counter, NAMESPACE))
# Dataflow recognizes this name, from Beam's own access to Cloud Storage: workers are waiting for a
# service, so it adds no more workers.
_throttled = Metrics.counter("gcsio", "cumulativeThrottlingSeconds")


class CloudDoFn(beam.DoFn):
    """A DoFn whose worker uses the pipeline's options for gs://: the account and projects."""

    def setup(self) -> None:
        cloud.use_cloud_options(worker_options())


class FunctionDoFn(CloudDoFn):
    """A DoFn that wraps a function.

    Args:
        function: (element) or (element, side input) -> elements.
    """

    def __init__(self, function: Callable[..., Iterable[Any]]) -> None:
        self._function = function

    def process(self, element: Any, side_input: Any = None) -> Iterable[Any]:
        if side_input is None:
            return self._function(element)
        return self._function(element, side_input)


def count(name: str, number: int = 1) -> None:
    """Adds to a counter; docs/dataflow.md describes the counters."""
    _counter(name).inc(number)


def count_skipped(kinds: Mapping[str, int]) -> None:
    """Counts files that are skipped: all of them, and those of the most common kinds of names."""
    counter = collections.Counter(kinds)
    count("skipped", counter.total())
    for kind, number in counter.most_common(_MOST_KINDS):
        count(f"{SKIPPED_KIND}{kind}", number)


def count_read(items: Iterable[Item]) -> None:
    """Counts the bytes that were read for a list of items."""
    sizes = [item.size_bytes for item in items if isinstance(item.value, (bytes, Accompanied))]
    if sizes:
        count("bytes-read", sum(sizes))


def count_waits() -> None:
    """Counts the requests to gs:// that this process has retried since the last call."""
    waits = storage.take_waits()
    if waits["retries"]:
        count("retries", waits["retries"])
        count("too-many-requests", waits["too_many"])
    seconds = waits["throttled_ms"] // 1000
    if seconds:
        _throttled.inc(seconds)


def count_shard(info: ShardInfo) -> None:
    """Counts a shard that was written."""
    count("shards")
    count("bytes-written", info.num_bytes)
    for kind, number in info.adjusted.items():
        count(f"adjusted-{kind}", number)
