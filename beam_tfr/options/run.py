"""The options of a run: reading, failing, reporting. None can change a record."""

import dataclasses
import functools

from beam_tfr import storage
from beam_tfr.console.display import FORMATS
from beam_tfr.options import kinds
from beam_tfr.options.table import RUN, Checked, option

MAX_READ_AHEAD = 1024  # each image read ahead has its own thread
_run = functools.partial(option, group=RUN, changes_data=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DisplayOptions(Checked):
    """How a command shows its progress and result."""

    log_format: str = _run(
        "auto",
        help="how to show progress on stderr: live on a terminal, else a line every 10 s (auto); "
        "always lines (plain); or one JSON object per line (json); warnings, errors and the "
        "summary stay text, see --json",
        choices=FORMATS,
        template=False,
    )
    quiet: bool = _run(
        False, help="hide progress; still print warnings, errors and the summary", template=False
    )
    json: bool = _run(
        False,
        help="print the summary as one JSON object on stdout, and nothing else",
        template=False,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(DisplayOptions):
    """The options of `ConvertOptions` for the run."""

    read_ahead: int = _run(
        storage.READ_AHEAD,
        help="images per shard to fetch while others are decoded; increase it for distant storage",
        low=1,
        high=MAX_READ_AHEAD,
    )
    gcs_project: str = _run(
        "", help="project to bill for requests to requester-pays buckets", metavar="PROJECT"
    )
    max_rejects: int | float | None = _run(
        None,
        help="how many images may be rejected before the run fails: a share, with a decimal point "
        "(0.01 is 1 % of any number), or a count (25) (default: 1 %, or 10 images if that is more, "
        "but never more than 10 %)",
        kind=kinds.SHARE_OR_COUNT,
    )
    allow_empty: tuple[str, ...] = _run(
        (),
        help="splits and classes whose images may all be rejected",
        kind=kinds.Kind(metavar="NAME", many=True),
    )
    accept_unreadable: bool = _run(
        False,
        help="reject images that cannot be read now but may be later: no permission, a failing "
        "disk or service; without it, the run fails and the next one tries them again",
    )
    overwrite: bool = _run(False, help="replace another dataset in the output folder")
    report: bool = _run(
        False,
        help="also write report.html into the output folder: what deserves a look, samples, "
        "classes, sizes, copies and rejects",
        template=False,
    )
    no_wait: bool = _run(
        False, help="on Dataflow: return as soon as the job is created", template=False
    )
    on_interrupt: str = _run(
        "ask",
        help="on Dataflow: what Ctrl-C does with the job",
        choices=("ask", "cancel", "leave"),
        template=False,
    )

    @property
    def allows_rejects(self) -> bool:
        """Whether it was said that files may be rejected, so a damaged archive may be one."""
        return bool(self.max_rejects)


# Options of a conversion that an update does not take.
NOT_FOR_UPDATES = ("output", "name", "overwrite", "no_wait", "report")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateOptions(Checked):
    """How a dataset is updated.

    Raises:
        UsageError: a value is not allowed.
    """

    compare: str = _run(
        "auto",
        help="how to see whether an image has changed. auto: by size and time on a disk, by "
        "checksum on gs://, both as listed; checksum: read and hash all images; names: an image "
        "of the same name is the same",
        choices=("auto", "checksum", "names"),
    )
    resplit: bool = _run(
        False,
        help="with --stratify: divide all images anew; without it, those that are in the dataset "
        "stay in their splits, and new ones go where shares are short",
    )
    codecs: str = _run(
        "",
        help="if other versions of the codecs made the dataset: keep its records and note that in "
        "the manifest, or convert all images again (default: neither, but say so)",
        choices=("keep", "convert"),
    )
