"""Follows the progress of a conversion, image by image, through Beam's counters."""

import contextlib
from collections.abc import Callable, Mapping

from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import counted
from beam_tfr.pipeline import Convert

# counters that start after planning
_PLANNED = frozenset({"planned-shards", "images", "resumed-images"})


class Reporter:
    """Reports the progress of a run, based on the engine's counters and the plan in the folder.

    The folder is read at the start, and again once the engine has claimed it, because the plan then
    states the totals.

    Args:
        step: the running step.
        progress: called with the progress.
        say: called at the start if an earlier run has finished shards.
    """

    def __init__(
        self, step: Convert, progress: Callable[[Progress], object], say: Callable[[str], object]
    ) -> None:
        self._step = step
        self._progress = progress
        self._planned: Progress | None = None
        earlier = self._read_progress()
        if earlier and earlier.shards:
            shards = counted(earlier.num_shards, "shard")
            say(f"an earlier run has finished {earlier.shards:,} of {shards}")

    def __call__(self, counters: Mapping[str, int]) -> None:
        """Reports the progress; the first call is before the run starts."""
        if self._planned is None and not _PLANNED.isdisjoint(counters):
            self._planned = self._read_progress()
        if self._planned is None:
            self._progress(Progress("listing", counters.get("listed", 0)))
        else:
            self._progress(count_progress(self._planned, counters))

    def _read_progress(self) -> Progress | None:
        """Reads the progress from the folder; returns None if there is no readable plan yet."""
        with contextlib.suppress(OSError):
            return self._step.progress()
        return None


def count_progress(planned: Progress, counters: Mapping[str, int]) -> Progress:
    """Computes the progress of a planned run from its counters.

    Args:
        planned: the progress in the folder; only its totals are used. Shards that an earlier run
            finished are counted only when this run reaches them.
        counters: this package's counters; a retried bundle may be counted twice.
    """
    images = counters.get("images", 0) + counters.get("resumed-images", 0)
    shards = counters.get("shards", 0) + counters.get("resumed-shards", 0)
    is_at_end = shards >= planned.num_shards
    return planned._replace(
        stage="publishing" if is_at_end else "converting",
        done=min(images, planned.total),
        shards=min(shards, planned.num_shards),
        num_bytes=counters.get("bytes-read", 0),
        rejected=counters.get("rejected", 0),
    )
