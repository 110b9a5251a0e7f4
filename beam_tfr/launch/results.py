"""Results of a conversion: a dataset or a saved plan."""

from __future__ import annotations

import contextlib
import dataclasses
import time

from beam_tfr import manifest
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


class Beginning:
    """What was in the output, and when, before a run began.

    Args:
        options: of the run.
        look: whether the output is looked at.
    """

    def __init__(self, options: ConvertOptions, *, look: bool = True) -> None:
        self._options, self._started = options, time.monotonic()
        self._before = None
        if look:
            with contextlib.suppress(BeamTfrError):
                self._before = manifest.read(options.output).fields

    @property
    def crashed(self) -> bool:
        """Whether there was a dataset with images that crashed the decoder."""
        return self._before is not None and "crashed-decoder" in self._before["counts"]["rejected"]

    def result(self) -> Result | Saved:
        """The result of the run, which has ended.

        Raises:
            RunError: there is no dataset, or no plan, whatever the engine says.
        """
        options = self._options
        try:
            if options.save_plan:
                with SavedPlan(options.save_plan) as saved:
                    return Saved(path=options.save_plan, plan=saved.plan, seconds=time.monotonic() - self._started)
            published = manifest.read(options.output)
        except (UsageError, DataError) as error:
            raise RunError(f"the runner reports success, but it lost elements on the way: {error}") from error
        fresh = options.overwrite or self._before != published.fields
        return Result(manifest=published, seconds=time.monotonic() - self._started, fresh=fresh)
