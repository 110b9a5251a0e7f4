"""Shows the progress of a command: live on a terminal and in a notebook, else a line every ten
seconds."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import time
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from beam_tfr.console.terminal import counted, own_stderr, printable

LINE_S = 10.0  # between lines, and before the first, where nothing can be overwritten
PACE_S = 60.0  # over which the rate is averaged
BAR = 20
WIDE = 60  # columns of a bar, and of a terminal that has room for one
FORMATS = ("auto", "plain", "json")


class Progress(NamedTuple):
    """The progress of a command.

    Attributes:
        stage: name of the stage: "starting", "listing", "converting", "publishing", "verifying".
        done: number finished so far, including those of an earlier run.
        total: total number; 0 if it is not known yet.
        shards, num_shards: finished shards, and all; both 0 if there are none.
        num_bytes: bytes read so far by this command.
        rejected: images rejected by this command.
    """

    stage: str
    done: int
    total: int = 0
    shards: int = 0
    num_shards: int = 0
    num_bytes: int = 0
    rejected: int = 0


class Display:
    """Shows progress on a stream: live from the start, or a line every `LINE_S`; a context manager.

    rich draws it, in a notebook with ipywidgets, and computes rates and the time left. The work of
    an earlier run and the start of the engine do not count, since rates are measured from the first
    progress of a stage.

    Args:
        stream: a terminal, a notebook's cell, or anything else.
        command: name of the command, at the start of each line.
        what: plural noun for what is counted.
        log_format: one of `FORMATS`; auto is live on a terminal and in a cell, else plain.
        quiet: shows no progress; messages of `say` remain.
    """

    def __init__(
        self,
        stream: IO[str],
        command: str,
        *,
        what: str = "images",
        log_format: str = "auto",
        quiet: bool = False,
    ) -> None:
        import rich.console
        from rich import progress as bars

        self._stream = stream
        self._command = command
        self._what = what
        self._format = log_format
        self._quiet = quiet
        console = rich.console.Console(file=stream)
        in_cell = type(stream).__module__ == "ipykernel.iostream" and bool(
            importlib.util.find_spec("ipywidgets")
        )
        on_terminal = stream.isatty() and not console.is_dumb_terminal
        self._is_live = log_format == "auto" and not quiet and (in_cell or on_terminal)
        text = bars.TextColumn("{task.description}", markup=False)
        self._bars = bars.Progress(
            *([bars.BarColumn(BAR), text] if console.width >= WIDE else [text]),
            console=console,
            auto_refresh=False,
            speed_estimate_period=PACE_S,
            transient=not in_cell,
            # Redirected, sys.stderr would show what `silent_stderr` drops, and stay silent after
            # it.
            redirect_stdout=False,
            redirect_stderr=False,
            get_time=time.monotonic,
        )
        self._before = Progress("", 0)
        self._last = ""
        self._shown = ""
        self._began = time.monotonic()
        self._next = self._began + LINE_S

    def __enter__(self) -> Display:
        if self._is_live:
            with contextlib.suppress(OSError):
                self._bars.start()
            self(Progress("starting", 0))
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            with contextlib.suppress(OSError):
                self._bars.stop()
        if self._format == "json" and self._last != self._shown:
            self._print(self._last)

    @property
    def seconds(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._began

    def __call__(self, progress: Progress) -> None:
        """Shows the progress if what is shown is old enough."""
        if self._quiet:
            return
        rate, bytes_rate, left_s = self._pace(progress)
        if self._format == "json":
            fields = {
                **progress._asdict(),
                "per_s": round(rate, 1),
                "bytes_per_s": round(bytes_rate),
                "left_s": left_s,
            }
            self._last = json.dumps({"command": self._command, **fields})
        else:
            self._last = describe(progress, self._what, rate, bytes_rate, left_s)
        if self._is_live:
            with contextlib.suppress(OSError):
                self._bars.update(self._items, description=self._last, refresh=True)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_S
            self._shown = self._last
            self._print(
                self._last
                if self._format == "json"
                else f"{self._command}: {printable(self._last)}"
            )

    def _pace(self, progress: Progress) -> tuple[float, float, float]:
        """Returns things/s, bytes/s and the seconds left; 0 while they are not known."""
        if progress.stage != self._before.stage or progress.done < self._before.done:
            for task in self._bars.task_ids:
                self._bars.remove_task(task)
            self._items = self._bars.add_task(progress.stage, total=None, completed=progress.done)
            self._bytes = self._bars.add_task(
                "", total=None, completed=progress.num_bytes, visible=False
            )
        self._before = progress
        self._bars.update(self._items, completed=progress.done, total=progress.total or None)
        self._bars.update(self._bytes, completed=progress.num_bytes)
        items, read = self._bars.tasks
        return items.speed or 0.0, read.speed or 0.0, items.time_remaining or 0.0

    def say(self, text: str) -> None:
        """Prints a message on a line of its own."""
        line = f"{self._command}: {printable(text)}"
        self._print(
            json.dumps({"command": self._command, "message": text})
            if self._format == "json"
            else line
        )

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):
            if self._is_live:
                self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                print(line, file=self._stream, flush=True)


@contextlib.contextmanager
def on_stderr(command: str, **options: Any) -> Iterator[Display]:
    """A `Display` on standard error, in a notebook in the cell; `options` are its options."""
    with own_stderr() as stream, Display(stream, command, **options) as shown:
        yield shown


def describe(progress: Progress, what: str, rate: float, bytes_rate: float, left_s: float) -> str:
    """One line: "converting: 1,200 of 3,781 images, 4 s left, 612 images/s, 14.1 MB/s, 3 of 16
    shards".

    The most important part comes first, because a narrow terminal cuts off the rest.
    """
    noun = what.removesuffix("s")
    parts = [
        f"{progress.done:,} of {counted(progress.total, noun)}" if progress.total else "",
        counted(progress.done, noun) if progress.done and not progress.total else "",
        f"{duration(left_s)} left" if left_s else "",
        f"{progress.rejected:,} rejected" if progress.rejected else "",
        f"{rate:,.0f} {what}/s" if rate else "",
        f"{bytes_rate / 1e6:,.1f} MB/s" if bytes_rate else "",
        f"{progress.shards:,} of {counted(progress.num_shards, 'shard')}"
        if progress.num_shards
        else "",
    ]
    text = ", ".join(filter(None, parts))
    return f"{progress.stage}: {text}" if text else progress.stage


def duration(seconds: float) -> str:
    """Seconds for people: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 120:
        return f"{seconds:,.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60:02d} min"
