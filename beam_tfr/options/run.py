"""Defines the options of a run: reading, failing, reporting. None of them can change a record."""

import dataclasses
import functools

from beam_tfr import storage
from beam_tfr.console.display import FORMATS
from beam_tfr.options import kinds
from beam_tfr.options.groups import CLASSES, DATAFLOW, PROGRESS, REJECTS, RUN
from beam_tfr.options.table import Checked, option

MAX_READ_AHEAD = 1024  # each image read ahead has its own thread
_run = functools.partial(option, group=RUN, changes_data=False)
_rejects = functools.partial(option, group=REJECTS, changes_data=False)
_progress = functools.partial(option, group=PROGRESS, changes_data=False, template=False)
_dataflow = functools.partial(option, group=DATAFLOW, changes_data=False, template=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DisplayOptions(Checked):
    """The options that control how a command shows its progress and result."""

    quiet: bool = _progress(
        False, help="show no progress; warnings, errors and the result are still printed"
    )
    progress_format: str = _progress(
        "auto",
        help="how progress is shown on stderr. auto: live on a terminal, otherwise a line "
        "every 10 s; plain: always lines; json: one JSON object per line",
        choices=FORMATS,
    )
    json: bool = _progress(
        False,
        help="print the result as one JSON object on stdout",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(DisplayOptions):
    """The options in `ConvertOptions` that control the run."""

    read_ahead: int = _run(
        storage.READ_AHEAD,
        help="how many images of a shard are fetched at the same time; raise it if cores "
        "wait for distant storage",
        low=1,
        high=MAX_READ_AHEAD,
    )
    gcs_project: str = _run(
        "", help="project to bill for requests to requester-pays buckets", metavar="PROJECT"
    )
    max_rejects: int | float | None = _rejects(
        None,
        help="how many images may be rejected before the run fails: a fraction with a "
        "decimal point (0.01), or a number of images (25) (default: 1%, or 10 images if "
        "that is more, but never more than 10%)",
        brief="how many images may be rejected before the run fails: a fraction (0.01) or a "
        "number (25) (default: 1%, at least 10 images)",
        kind=kinds.SHARE_OR_COUNT,
    )
    allow_empty: tuple[str, ...] = _rejects(
        (),
        help="splits and classes that may lose all their images; if any others do, the run fails",
        kind=kinds.Kind(metavar="NAME", many=True),
    )
    accept_unreadable: bool = _rejects(
        False,
        help="reject images that cannot be read because of a missing permission or a failing "
        "disk or service. Without it, the run fails, and the next run reads them again",
    )
    overwrite: bool = _run(
        False,
        help="replace another dataset in the output folder",
        brief="replace another dataset in the output folder",
    )
    report: bool = _progress(
        False,
        help="also write report.html, an overview of the dataset, to the output folder",
    )
    no_wait: bool = _dataflow(False, help="return as soon as the job is created")
    on_interrupt: str = _dataflow(
        "ask",
        help="what Ctrl-C does with the job: cancel it, leave it running, or ask",
        choices=("ask", "cancel", "leave"),
    )

    @property
    def allows_rejects(self) -> bool:
        """Whether an option allows rejects, so that a damaged archive may count as a reject."""
        return bool(self.max_rejects)


# Options of a conversion that an update does not accept.
NOT_FOR_UPDATES = ("output", "name", "overwrite", "no_wait", "report")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateOptions(Checked):
    """The options of an update.

    Raises:
        UsageError: a value is not allowed.
    """

    compare: str = _run(
        "auto",
        help="how to tell whether an image has changed. auto: by the listed size and time on a "
        "disk, or the listed checksum on gs://; checksum: read and hash all images; names: "
        "an image with the same name counts as unchanged",
        brief="how to tell whether an image has changed: auto (size and time, or checksum on "
        "gs://), checksum or names (default: auto)",
        choices=("auto", "checksum", "names"),
    )
    max_removed: int | float = _rejects(
        0.5,
        help="how many images of the dataset may be missing from the input, and so be removed, "
        "before the update fails: a fraction, with a decimal point (1.0 allows all), or a "
        "number (25). An input with only new images would remove all others",
        brief="how many images of the dataset may be missing from the input, and so be removed, "
        "before the update fails: a fraction (0.5) or a number (25) (default: 0.5)",
        kind=kinds.SHARE_OR_COUNT,
    )
    resplit: bool = option(
        False,
        group=CLASSES,
        changes_data=False,
        help="with --stratify: divide all images again. Otherwise, existing images stay in their "
        "splits, and new ones go to the splits that have too few",
    )
    codecs: str = _run(
        "",
        help="if the dataset was made with different codec versions: keep its records and "
        "note that in the manifest, or convert all images again (default: stop with a "
        "message)",
        choices=("keep", "convert"),
    )
