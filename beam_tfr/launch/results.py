"""Results of a conversion: a dataset, a saved plan, or a job elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import time

from beam_tfr import dataflow, manifest
from beam_tfr.options import ConvertOptions
from beam_tfr.saved_plan import SavedPlan
from beam_tfr.schema import BeamTfrError, DataError, Plan, RunError, UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A complete dataset.

    Attributes:
        manifest: of the dataset.
        seconds: wall time.
        fresh: False when the dataset was there already and nothing was done.
    """

    manifest: manifest.Manifest
    seconds: float
    fresh: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """A plan that was made and saved.

    Attributes:
        path: of the file.
        plan: in it.
        seconds: wall time.
    """

    path: str
    plan: Plan
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A conversion that continues without this process.

    Attributes:
        job: that was created; None where only its description was, for a template or a dry run.
        place: of the description that a template's launcher asked for; empty: nowhere.
    """

    job: dataflow.Job | None
    place: str


class Beginning:
    """What was in the output, and when, before a run began.

    Args:
        options: of the run.
        look: whether the output is looked at.
    """

    def __init__(self, options: ConvertOptions, *, look: bool = True) -> None:
        self._options, self._started = options, time.monotonic()
        self._before = _published(options.output) if look else None

    def is_published(self) -> bool:
        """Whether the run has published a dataset since."""
        return _published(self._options.output) not in (None, self._before)

    def result(self) -> Result | Saved:
        """The result of the run, which has ended.

        Raises:
            RunError: there is no dataset, or no plan, whatever the engine says.
        """
        options, lost = self._options, "the runner reports success, but"
        if options.save_plan:
            try:
                with SavedPlan(options.save_plan) as saved:
                    return Saved(path=options.save_plan, plan=saved.plan, seconds=time.monotonic() - self._started)
            except UsageError as error:
                raise RunError(f"{lost} there is no plan: {error}") from error
        try:
            published = manifest.read(options.output)
        except DataError as error:
            raise RunError(f"{lost} it lost elements on the way: {error}") from error
        fresh = options.overwrite or self._before != manifest.to_bytes(published.fields)
        return Result(manifest=published, seconds=time.monotonic() - self._started, fresh=fresh)


def _published(output: str) -> bytes | None:
    with contextlib.suppress(BeamTfrError):
        return manifest.to_bytes(manifest.read(output).fields)
    return None
