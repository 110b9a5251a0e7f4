"""Shows the progress of a command: live on a terminal and in a notebook, else a line every ten seconds."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from beam_tfr.terminal import counted, own_stderr, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

FIRST_S = 0.0  # before the first state where it can be overwritten
CELL_S = 0.5  # between changes in a notebook
LINE_S = 10.0  # between lines, and before the first, where nothing can be overwritten
BAR, WIDE = 20, 60  # columns of a bar, and of a terminal that has room for one
SURE_S, SURE_SHARE, LONG_S = 3.0, 0.05, 60.0  # of a stage, before its time left is shown: both, or `LONG_S` alone
SAMPLING = "sampling"  # takes less time than what follows, so no time left is shown
MEASURING = "measuring"  # its images are copies of the sample, whose number tells a user nothing: a share is shown
FORMATS = ("auto", "plain", "json")


class State(NamedTuple):
    """The progress of a command.

    Attributes:
        stage: name of the stage: "starting", "listing", "converting", "verifying".
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


class Pace:
    """The rate of a stage since it began, and the time left once enough is done to tell.

    The work of an earlier run and the start of the engine do not count.

    Args:
        now: seconds on a clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._first, self._done = (State("", 0), 0.0), 0

    def add(self, state: State) -> tuple[float, float, float]:
        """Returns things/s, bytes/s and the seconds left; 0 while they are not known."""
        now = self._now()
        first, _ = self._first
        if state.stage != first.stage or state.done < self._done or state.done == first.done:
            self._first = state, now
        self._done = state.done
        first, since = self._first
        if state.done == first.done:
            return 0.0, 0.0, 0.0
        seconds = max(now - since, 1e-3)
        rate = (state.done - first.done) / seconds
        much = state.done - first.done >= SURE_SHARE * (state.total - first.done)
        sure = state.total and state.stage != SAMPLING and (seconds >= LONG_S or (seconds >= SURE_S and much))
        left = (state.total - state.done) / rate if sure else 0.0
        return rate, (state.num_bytes - first.num_bytes) / seconds, left


class Display:
    """Shows states on a stream: live from the start, or a line every `LINE_S`; a context manager.

    In a notebook, the messages and one line remain: what was done in which time, or where it failed.

    Args:
        stream: a terminal, a notebook's cell, or anything else.
        command: name of the command, at the start of each line.
        what: plural noun for what is counted.
        log_format: one of `FORMATS`; auto is live on a terminal and in a cell, else plain.
        quiet: shows no states; messages of `say` remain.
    """

    def __init__(
        self, stream: IO[str], command: str, *, what: str = "images", log_format: str = "auto", quiet: bool = False
    ) -> None:
        self._stream, self._command, self._what = stream, command, what
        self._format, self._quiet = log_format, quiet
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._cell: Any = None
        self._messages: list[str] = []
        self._state, self._last, self._shown = State("", 0), "", ""
        auto = log_format == "auto"
        self._is_live = auto and stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self._in_cell = auto and type(stream).__module__ == "ipykernel.iostream"
        first_s = FIRST_S if self._is_live or self._in_cell else LINE_S
        self._began = time.monotonic()
        self._pace, self._next = Pace(time.monotonic), self._began + first_s

    def __enter__(self) -> Display:
        if self._is_live or self._in_cell:
            self(State("starting", 0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
        if self._cell is not None and not self._quiet:
            total, took = self._state.total, f"in {duration(self.seconds)}"
            if total and total == self._state.done:
                took = f"{counted(total, self._what.removesuffix('s'))} {took}"
            self._change(self._last if error else f"done: {took}")
        if self._format == "json" and not self._quiet and self._state.stage and self._last != self._shown:
            self._print(self._last)

    @property
    def seconds(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._began

    def __call__(self, state: State) -> None:
        """Shows a state if the last one is old enough."""
        rate, bytes_rate, left = self._pace.add(state)
        if self._format == "json":
            about = {**state._asdict(), "per_s": round(rate, 1), "bytes_per_s": round(bytes_rate)}
            self._last = json.dumps({"command": self._command, **about, "left_s": round(left, 1)})
        else:
            self._last = describe(state, self._what, rate, bytes_rate, left)
        self._state = state
        if self._quiet or time.monotonic() < self._next:
            return
        if self._is_live:
            self._draw(state)
            return
        if self._in_cell:
            self._change(self._last)
            return
        self._next = time.monotonic() + LINE_S
        if self._format == "json":
            self._shown = self._last
            self._print(self._last)
        else:
            self.say(self._last)

    def say(self, text: str) -> None:
        """Prints a message on a line of its own."""
        line = f"{self._command}: {printable(text)}"
        if self._in_cell:
            self._messages.append(line)
            self._change(self._shown)
            return
        self._print(json.dumps({"command": self._command, "message": text}) if self._format == "json" else line)

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):
            if self._live is not None:
                self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                print(line, file=self._stream, flush=True)

    def _change(self, text: str) -> None:
        self._next, self._shown = time.monotonic() + CELL_S, text
        shown = {"text/plain": "\n".join([*self._messages, *([f"{self._command}: {text}"] if text else [])])}
        if self._cell is None:
            self._cell = importlib.import_module("IPython.display").display(shown, raw=True, display_id=True)
        else:
            self._cell.update(shown, raw=True)

    def _draw(self, state: State) -> None:
        with contextlib.suppress(OSError):
            if self._live is None or self._task is None:
                self._live = _bar(self._stream)
                self._task = self._live.add_task("", total=None)
                self._live.start()
            width = self._live.console.width
            text = _fitting(self._last, width - BAR - 1 if width >= WIDE else width)
            self._live.update(self._task, description=text, completed=state.done, total=state.total or None)
            self._live.refresh()


@contextlib.contextmanager
def on_stderr(command: str, **how: Any) -> Iterator[Display]:
    """A `Display` on standard error, in a notebook in the cell; `how` are its options."""
    with own_stderr() as stream, Display(stream, command, **how) as shown:
        yield shown


def describe(state: State, what: str, rate: float, bytes_rate: float, left: float) -> str:
    """One line: "converting: 1,200 of 3,781 images, 4 s left, 612 images/s, 14.1 MB/s, 3 of 16 shards".

    The most important part comes first, because a narrow terminal cuts off the rest.
    """
    noun = what.removesuffix("s")
    parts = [f"{state.done:,} of {counted(state.total, noun)}" if state.total else counted(state.done, noun)]
    if state.stage.startswith(MEASURING) and state.total:
        parts = [f"{state.done / state.total:.0%}"]
    elif not (state.done or state.total):
        parts = []
    if left:
        parts.append(f"{duration(left)} left")
    if state.rejected:
        parts.append(f"{state.rejected:,} rejected")
    if rate:
        parts.append(f"{rate:,.0f} {what}/s")
    if bytes_rate:
        parts.append(f"{bytes_rate / 1e6:,.1f} MB/s")
    if state.num_shards:
        parts.append(f"{state.shards:,} of {counted(state.num_shards, 'shard')}")
    return f"{state.stage}: {', '.join(parts)}" if parts else state.stage


def duration(seconds: float) -> str:
    """Seconds for people: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 120:
        return f"{seconds:,.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60:02d} min"


def _fitting(text: str, width: int) -> str:
    """A described state without the parts at its end that do not fit."""
    if len(", ".join(text.split(", ")[:2])) > width:  # the time left counts more than the stage
        text = text.partition(": ")[2]
    while len(text) > width and ", " in text:
        text = text.rpartition(", ")[0]
    return text


def _bar(stream: IO[str]) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(file=stream)
    bar = [BarColumn(bar_width=BAR)] if console.width >= WIDE else []
    columns = *bar, TextColumn("{task.description}", markup=False)
    # Redirected, sys.stderr would show what `silent_stderr` drops, and stay silent after it.
    return Progress(
        *columns, console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    )
