"""Shows the progress of a command: live on a terminal and in a notebook, otherwise line by line."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from beam_tfr.console.terminal import as_message, counted, own_stderr, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn

LINE_S = 10.0  # between lines, and before the first, if lines cannot be overwritten
BEAT_S = LINE_S  # between checks whether to repeat the last line
PACE_S = 60.0  # period for the average rate
BAR = 20
WIDE = 60  # columns of a bar, and the least columns of a terminal that shows one
FORMATS = ("auto", "plain", "json")


class Progress(NamedTuple):
    """The progress of a command.

    Attributes:
        stage: name of the stage: "starting", "listing", "converting", "publishing", "verifying".
        done: number of items finished so far, including those of an earlier run.
        total: total number of items; 0 if it is not known yet.
        shards, num_shards: numbers of finished shards and of all shards; 0 if there are no shards.
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


class Pace(NamedTuple):
    """How fast a stage advances; values that are not known yet are 0.

    Attributes:
        items_per_s: records, images or other items per second.
        bytes_per_s: bytes read per second.
        left_s: seconds until the end of the stage.
    """

    items_per_s: float
    bytes_per_s: float
    left_s: float


_NO_PACE = Pace(0.0, 0.0, 0.0)


class _Lines:
    """Prints messages, and the progress every `LINE_S` seconds, each on a line of its own.

    While there is no new progress, for example before a service answers, a thread repeats the last
    line.
    """

    def __init__(self, stream: IO[str], command: str) -> None:
        self._stream = stream
        self._command = command
        self._next = time.monotonic() + LINE_S
        self._line = ""  # line for the last progress
        self._is_printed = True
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self) -> None:
        self._line = self._format(Progress("starting", 0), "", _NO_PACE)
        with contextlib.suppress(RuntimeError):  # no more threads can be started
            threading.Thread(target=self._repeat, name="beam_tfr-display", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def show(self, progress: Progress, noun: str, pace: Pace) -> None:
        self._line = self._format(progress, noun, pace)
        self._is_printed = False
        self._print_if_due()

    def _repeat(self) -> None:
        while not self._ended.wait(BEAT_S):
            self._print_if_due()

    def _print_if_due(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return
            self._next = now + LINE_S
            self._is_printed = True
            self._print(self._line)

    def _format(self, progress: Progress, noun: str, pace: Pace) -> str:
        return f"{self._command}: {printable(describe(progress, noun, pace))}"

    def say(self, text: str) -> None:
        self._print(f"{self._command}: {text}")

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):
            print(line, file=self._stream, flush=True)


class _JsonLines(_Lines):
    """Prints messages, the progress every `LINE_S` seconds, and the final progress as JSON."""

    def stop(self) -> None:
        super().stop()
        if not self._is_printed:
            self._print(self._line)

    def _format(self, progress: Progress, noun: str, pace: Pace) -> str:
        fields = {
            "command": self._command,
            **progress._asdict(),
            "per_s": round(pace.items_per_s, 1),
            "bytes_per_s": round(pace.bytes_per_s),
            "left_s": pace.left_s,
        }
        return json.dumps(fields)

    def say(self, text: str) -> None:
        self._print(json.dumps({"command": self._command, "message": text}))


class _Live(_Lines):
    """Draws the progress in place, below the messages."""

    def __init__(self, stream: IO[str], command: str, bars: RichProgress) -> None:
        super().__init__(stream, command)
        self._bars = bars

    def start(self) -> None:
        with contextlib.suppress(OSError):
            self._bars.add_task("starting", total=None)  # until there is any progress
            self._bars.start()
            self._bars.refresh()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._bars.stop()

    def show(self, progress: Progress, noun: str, pace: Pace) -> None:
        text = describe(progress, noun, pace)
        with contextlib.suppress(OSError):
            self._bars.update(self._bars.task_ids[0], description=text, refresh=True)

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)


class Display:
    """A context manager that shows progress on a stream, live or as a line every `LINE_S` seconds.

    rich draws the progress (in a notebook, using ipywidgets), and computes rates and the time left.
    Rates are measured from the first progress of a stage, so they exclude the work of an earlier
    run and the time to start the engine.

    Args:
        stream: a terminal, a notebook's cell, or any other stream.
        command: name of the command, shown at the start of each line.
        noun: plural noun for the counted items.
        progress_format: one of `FORMATS`; "auto" is live on terminals and in cells, otherwise
            "plain".
        quiet: whether to hide the progress, but not the messages of `say`.
        spell: function that rewrites the options in messages of `say`.
    """

    def __init__(
        self,
        stream: IO[str],
        command: str,
        *,
        noun: str = "images",
        progress_format: str = "auto",
        quiet: bool = False,
        spell: Callable[[str], str] = str,
    ) -> None:
        import rich.console

        console = rich.console.Console(file=stream)
        in_cell = _is_cell(stream)
        on_terminal = stream.isatty() and not console.is_dumb_terminal
        self._noun = noun
        self._is_quiet = quiet
        self._spell = spell
        self._bars = _build_bars(console, transient=not in_cell)
        self._output: _Lines
        if progress_format == "json":
            self._output = _JsonLines(stream, command)
        elif progress_format == "auto" and not quiet and (in_cell or on_terminal):
            self._output = _Live(stream, command, self._bars)
        else:
            self._output = _Lines(stream, command)
        self._before = Progress("", 0)
        self._began = time.monotonic()

    def __enter__(self) -> Display:
        if not self._is_quiet:
            self._output.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._output.stop()

    @property
    def seconds(self) -> float:
        """The seconds since the command began."""
        return time.monotonic() - self._began

    def __call__(self, progress: Progress) -> None:
        """Shows the progress, unless it was shown a moment ago."""
        if not self._is_quiet:
            self._output.show(progress, self._noun, self._measure(progress))

    def say(self, text: str) -> None:
        """Prints a message on its own line."""
        self._output.say(self._spell(as_message(text)))

    def _measure(self, progress: Progress) -> Pace:
        """Passes the progress on to rich; returns the pace that rich computes."""
        if progress.stage != self._before.stage or progress.done < self._before.done:
            for task in self._bars.task_ids:
                self._bars.remove_task(task)
            self._bars.add_task(progress.stage, total=None, completed=progress.done)
            self._bars.add_task("", total=None, completed=progress.num_bytes, visible=False)
        self._before = progress
        items, num_bytes = self._bars.task_ids
        self._bars.update(items, completed=progress.done, total=progress.total or None)
        self._bars.update(num_bytes, completed=progress.num_bytes)
        items_task, bytes_task = self._bars.tasks
        return Pace(
            items_task.speed or 0.0, bytes_task.speed or 0.0, items_task.time_remaining or 0.0
        )


def _is_cell(stream: IO[str]) -> bool:
    """Whether a stream is a cell in a notebook that has widgets."""
    if type(stream).__module__ != "ipykernel.iostream":
        return False
    return importlib.util.find_spec("ipywidgets") is not None


def _build_bars(console: Console, *, transient: bool) -> RichProgress:
    """Builds rich's display of a command's progress: text, and a bar if the terminal is wide."""
    from rich import progress

    columns: list[ProgressColumn] = [progress.TextColumn("{task.description}", markup=False)]
    if console.width >= WIDE:
        columns.insert(0, progress.BarColumn(BAR))
    return progress.Progress(
        *columns,
        console=console,
        auto_refresh=False,
        speed_estimate_period=PACE_S,
        transient=transient,
        # Redirected, sys.stderr would show what `silent_stderr` drops, and stay silent after it.
        redirect_stdout=False,
        redirect_stderr=False,
        get_time=time.monotonic,
    )


@contextlib.contextmanager
def on_stderr(command: str, **options: Any) -> Iterator[Display]:
    """Creates a `Display` with these options on standard error or in a notebook's cell."""
    with own_stderr() as stream, Display(stream, command, **options) as display:
        yield display


def describe(progress: Progress, noun: str, pace: Pace) -> str:
    """Formats the progress as a line, such as "converting: 1,200 of 3,781 images, 4 s left".

    The most important part comes first, because a narrow terminal cuts off the rest.
    """
    parts = []
    singular = noun.removesuffix("s")
    if progress.total:
        parts.append(f"{progress.done:,} of {counted(progress.total, singular)}")
    elif progress.done:
        parts.append(counted(progress.done, singular))
    if pace.left_s:
        parts.append(f"{duration(pace.left_s)} left")
    if progress.rejected:
        parts.append(f"{progress.rejected:,} rejected")
    if pace.items_per_s:
        digits = 0 if pace.items_per_s >= 1 else 2
        parts.append(f"{pace.items_per_s:,.{digits}f} {noun}/s")
    if pace.bytes_per_s:
        parts.append(f"{pace.bytes_per_s / 1e6:,.1f} MB/s")
    if progress.num_shards:
        parts.append(f"{progress.shards:,} of {counted(progress.num_shards, 'shard')}")
    return f"{progress.stage}: {', '.join(parts)}" if parts else progress.stage


def duration(seconds: float) -> str:
    """Formats a number of seconds for people: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 120:
        return f"{seconds:,.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60:02d} min"
