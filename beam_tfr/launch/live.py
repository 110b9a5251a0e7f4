"""Follows the progress of a run by Beam's counters, image by image."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Mapping

from apache_beam.metrics import MetricsFilter
from apache_beam.runners.runner import PipelineResult

from beam_tfr.claim import Progress
from beam_tfr.transforms.counting import NAMESPACE

JOB_PERIOD_S = 10.0  # between questions for the counters of a job
FINAL_S = 5.0


def counters_of(result: PipelineResult) -> Mapping[str, int]:
    """Name -> value of this package's counters, with what is not committed yet; empty if the engine does not say."""
    totals: collections.Counter[str] = collections.Counter()
    try:
        queried = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))
    except Exception:  # noqa: BLE001 - of whatever kind: an engine without counters is no reason to end a run
        return totals
    for found in queried["counters"]:
        totals[found.key.metric.name] += max(found.attempted or 0, found.committed or 0)
    return totals


class JobCounters:
    """The counters of a remote job, requested in a separate thread, since a service may be slow or refuse.

    Args:
        result: result of the job.
    """

    def __init__(self, result: PipelineResult) -> None:
        self._result, self._latest = result, collections.Counter[str]()
        self._thread: threading.Thread | None = None
        self._next = 0.0

    def latest(self) -> Mapping[str, int]:
        """The last answer; asks again every `JOB_PERIOD_S` seconds."""
        if time.monotonic() >= self._next and not (self._thread and self._thread.is_alive()):
            self._ask()
        return self._latest

    def final(self) -> Mapping[str, int]:
        """The counters of a job that has ended, or the last answer if none comes within `FINAL_S`."""
        self._ask().join(FINAL_S)
        return self._latest

    def _ask(self) -> threading.Thread:
        self._next = time.monotonic() + JOB_PERIOD_S
        self._thread = threading.Thread(target=self._keep, name="beam_tfr-counters", daemon=True)
        self._thread.start()
        return self._thread

    def _keep(self) -> None:
        self._latest = collections.Counter(counters_of(self._result)) or self._latest


def has_begun(counters: Mapping[str, int]) -> bool:
    """True if a run has planned: what is in the folder from then on, another run may have finished too."""
    return any(counters.get(name) for name in ("planned-shards", "images", "resumed-images"))


def progress_of(there: Progress, counters: Mapping[str, int]) -> Progress:
    """The progress of a run that has planned.

    Args:
        there: what was finished in the folder when the run had planned.
        counters: from `counters_of` or `LocalRunner.counters`.
    """

    def finished(of: str, before: int, total: int) -> int:
        new, resumed = counters.get(of, 0), counters.get(f"resumed-{of}", 0)
        # The run has not come to all finished shards yet, or will write some again since their input has changed.
        ahead = max(before, resumed) + new
        return ahead if ahead < total else min(resumed + new, total)

    return with_counters(there, counters)._replace(
        finished_shards=finished("shards", there.finished_shards, there.num_shards),
        finished_images=finished("images", there.finished_images, there.matched),
    )


def without_new(there: Progress, counters: Mapping[str, int]) -> Progress:
    """What is finished in the folder, without what this run has finished by now; shards have about equal size."""
    new = min(counters.get("shards", 0), there.finished_shards)
    left = there.finished_shards - new
    images = there.finished_images * left // max(1, there.finished_shards)
    return there._replace(finished_shards=left, finished_images=images)


def with_counters(progress: Progress, counters: Mapping[str, int]) -> Progress:
    """Some progress, with what this run alone has listed, rejected, read and written."""
    return progress._replace(
        listed=counters.get("listed", 0),
        rejected=counters.get("rejected", 0),
        bytes_read=counters.get("bytes-read", 0),
        bytes_written=counters.get("bytes-written", 0),
    )
