"""The options of a run: reading, failing, reporting. None can change a record."""

from __future__ import annotations

import dataclasses
import functools
import math

from beam_tfr import storage
from beam_tfr.display import FORMATS
from beam_tfr.options import parsers
from beam_tfr.options.table import RUN, Checked, check_range, is_number, option

MAX_READ_AHEAD = 1024  # each image read ahead has its own thread
MAX_DEADLINE_S = 86_400
_run = functools.partial(option, group=RUN, changes_data=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Checked):
    """The options of `ConvertOptions` for the run."""

    read_ahead: int = _run(
        storage.READ_AHEAD,
        help="images per shard to fetch while others are decoded; increase it for distant storage",
        metavar="N",
        parse=parsers.integer,
    )
    read_deadline_s: float = _run(
        storage.DEADLINE_S,
        help="seconds to read an image from gs://, including retries, or up to an hour while the service throttles it "
        "but gives others; after that, its shard stays unfinished (see --accept_unreadable)",
        metavar="SECONDS",
        parse=parsers.number,
    )
    gcs_project: str = _run("", help="project to bill for requests to requester-pays buckets", metavar="PROJECT")
    max_rejects: int | float = _run(
        0.01,
        help="how many images may be rejected before the run fails: a share, with a decimal point (0.01), or a count "
        "(25)",
        metavar="N",
        parse=parsers.share_or_number,
        example="0.05",
    )
    fail_fast: bool = _run(
        False,
        help="stop early instead of finding all rejects: at the first one or, if --max_rejects is a count, when a "
        "worker exceeds it; --max_rejects 0 also stops at the first",
    )
    allow_empty: tuple[str, ...] = _run(
        (), help="splits and classes whose images may all be rejected", metavar="NAME", many=True
    )
    accept_unreadable: bool = _run(
        False,
        help="reject images that cannot be read now but may be later: no permission, a failing disk or service; "
        "without it, the run fails and the next one tries them again",
    )
    check_finished: bool = _run(
        False,
        help="when resuming, read all finished shards and compare their SHA-256; without it, only those whose "
        "modification time (on gs://: generation) has changed since they were written",
    )
    overwrite: bool = _run(False, help="replace another dataset in the output folder")
    log_format: str = _run(
        "auto",
        help="how to show progress on stderr: live on a terminal, else a line every 10 s (auto); always lines (plain); "
        "or one JSON object per line (json); warnings, errors and the summary stay text, see --json",
        choices=FORMATS,
        template=False,
    )
    quiet: bool = _run(False, help="hide progress; still print warnings, errors and the summary", template=False)
    json: bool = _run(False, help="print the summary as one JSON object on stdout, and nothing else", template=False)
    no_wait: bool = _run(False, help="on Dataflow: return as soon as the job is created", template=False)
    on_interrupt: str = _run(
        "ask", help="on Dataflow: what Ctrl-C does with the job", choices=("ask", "cancel", "leave"), template=False
    )

    def _check_run(self) -> None:
        check_range("read_ahead", self.read_ahead, 1, MAX_READ_AHEAD)
        if not is_number(self.read_deadline_s) or not 0 < self.read_deadline_s <= MAX_DEADLINE_S:
            self.refuse("read_deadline_s", f"must be above 0 and at most {MAX_DEADLINE_S} seconds")
        rejects = self.max_rejects
        if not is_number(rejects) or not 0 <= rejects <= (1.0 if isinstance(rejects, float) else math.inf):
            self.refuse("max_rejects", "must be a share from 0.0 to 1.0, or a whole number without a decimal point")

    @property
    def most_rejects(self) -> int | None:
        """The number of rejects of a worker above which the run stops early; None if it does not."""
        most = self.max_rejects if isinstance(self.max_rejects, int) else 0
        return most if self.fail_fast or self.max_rejects == 0 else None
