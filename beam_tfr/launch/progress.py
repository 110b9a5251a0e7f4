"""Follows the progress of a conversion by Beam's counters, image by image."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import counted
from beam_tfr.pipeline import Convert

MAX_LOOK_SHARE = 0.01  # of the time, for what is finished; with 100,000 shards on gs:// each look takes seconds
_NOTHING = Progress("listing", 0)


class Reporter:
    """Reports the progress of a run, from the engine's counters and what an earlier run finished.

    The folder is read rarely if it has many shards, once when the engine has claimed it, and then only for an engine
    without counters, since another run may be writing to it.

    Args:
        step: the running step.
        progress: called with the progress.
        say: called at the start if an earlier run finished something.
    """

    def __init__(
        self, step: Convert, progress: Callable[[Progress], object], say: Callable[[str], object] = lambda _: None
    ) -> None:
        self._step, self._progress, self._say = step, progress, say
        self._next_look, self._planned = 0.0, 0
        self._finished = _NOTHING
        self._earlier: Progress | None = None  # before this run did anything

    def __call__(self, counters: Mapping[str, int]) -> None:
        """Reports; the first call is before the run starts."""
        started = time.monotonic()
        planned, begun = counters.get("planned-shards", 0), has_begun(counters)
        known = begun and self._finished.total
        if planned != self._planned or (started >= self._next_look and not known):  # claimed, perhaps for another plan
            self._planned, self._finished = planned, _NOTHING
            with contextlib.suppress(OSError):
                self._finished = self._step.progress() or _NOTHING
            self._next_look = started + (time.monotonic() - started) / MAX_LOOK_SHARE
        if self._earlier is None:
            self._earlier = self._finished
            if self._earlier.shards:
                of = counted(self._earlier.num_shards, "shard")
                self._say(f"an earlier run has finished {self._earlier.shards:,} of {of}")
        if begun and self._finished.total:
            self._progress(progress_of(self._finished, counters))
        elif not counters and self._finished != self._earlier:  # the engine has no counters
            self._progress(self._finished)
        else:
            self._progress(Progress("listing", counters.get("listed", 0)))


def has_begun(counters: Mapping[str, int]) -> bool:
    """True if a run has planned: what is in the folder from then on, another run may have finished too."""
    return any(counters.get(name) for name in ("planned-shards", "images", "resumed-images"))


def progress_of(there: Progress, counters: Mapping[str, int]) -> Progress:
    """The progress of a run that has planned, by its counters.

    Args:
        there: the progress of the folder, for its totals. What is finished there counts when the run comes to it.
        counters: this package's counters; a retried bundle may count twice.
    """
    images, shards = (counters.get(of, 0) + counters.get(f"resumed-{of}", 0) for of in ("images", "shards"))
    return there._replace(
        stage="publishing" if shards >= there.num_shards else "converting",
        done=min(images, there.total),
        shards=min(shards, there.num_shards),
        num_bytes=counters.get("bytes-read", 0),
        rejected=counters.get("rejected", 0),
    )
