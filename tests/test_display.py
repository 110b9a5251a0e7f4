"""What a long command shows while it runs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.console import display
from beam_tfr.console.display import Display, Pace, Progress, duration
from beam_tfr.console.terminal import silent_stderr
from tests.conftest import wait_for


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(display.time, "monotonic", found)
    return found


def converting(done: int, total: int = 10_000, **more: int) -> Progress:
    return Progress("converting", done, total, num_shards=10, **more)


def test_a_line_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Display(stream, "convert") as shown:
        for second, state in (
            (0.0, Progress("listing", 0)),
            (1.9, Progress("listing", 3_000)),
            (10, Progress("listing", 30_000)),
            (12, converting(2_000)),  # of an earlier run
            (13, converting(2_000)),
            (15, converting(3_000, num_bytes=10_000_000, shards=2)),
            (23, converting(7_000, num_bytes=50_000_000, shards=7, rejected=3)),
            (23.1, converting(7_100, num_bytes=51_000_000, shards=7, rejected=3)),
        ):
            clock.now = 100 + second
            shown(state)
        shown.say("a message\x1b[31m")
    assert stream.getvalue().splitlines() == [
        "convert: listing: 30,000 images, 3,333 images/s",
        "convert: converting: 7,000 of 10,000 images, 6 s left, 3 rejected, 500 images/s, 5.0 "
        "MB/s, 7 of 10 shards",
        r"convert: a message\x1b[31m",
    ]


def test_a_silent_command_repeats_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LINE_S", 0.0)
    monkeypatch.setattr(display, "BEAT_S", 0.01)
    stream = io.StringIO()
    with Display(stream, "convert") as shown:
        wait_for(lambda: stream.getvalue().count("convert: starting\n") > 1)
        shown(Progress("submitting", 0))
        wait_for(lambda: stream.getvalue().count("convert: submitting\n") > 1)
    with Display(stream, "verify", quiet=True):
        time.sleep(0.05)
    assert "verify" not in stream.getvalue()


def test_json_lines(clock: Clock) -> None:
    stream = io.StringIO()
    with Display(stream, "verify", noun="records", progress_format="json") as shown:
        shown(converting(0))
        clock.now += 5
        shown(converting(2_500, num_bytes=10_000_000))
        clock.now += 5
        shown(converting(5_000, num_bytes=20_000_000, shards=1))
        shown.say("x")
        shown(converting(10_000, num_bytes=40_000_000, shards=1))
    state, message, last = map(json.loads, stream.getvalue().splitlines())
    assert state == {
        "command": "verify",
        "stage": "converting",
        "done": 5000,
        "total": 10000,
        "shards": 1,
        "num_shards": 10,
        "num_bytes": 20000000,
        "rejected": 0,
        "per_s": 500.0,
        "bytes_per_s": 2000000,
        "left_s": 10.0,
    }
    assert message == {"command": "verify", "message": "x"}
    assert last == {
        **state,
        "done": 10000,
        "num_bytes": 40000000,
        "per_s": 1500.0,
        "bytes_per_s": 6000000,
        "left_s": 0.0,
    }


def test_quiet_leaves_messages(clock: Clock) -> None:
    stream = io.StringIO()
    with Display(stream, "convert", quiet=True) as shown:
        clock.now += 60
        shown(converting(1))
        shown.say("job 7")
    assert stream.getvalue() == "convert: job 7\n"


@pytest.fixture
def terminal() -> Iterator[tuple[io.TextIOWrapper, Callable[[], str]]]:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:

        def seen() -> str:
            found = b""
            while select.select([ours], [], [], 0)[0]:
                found += os.read(ours, 1 << 16)
            return found.decode()

        yield stream, seen
    os.close(ours)


def test_a_terminal_shows_one_line_in_place(
    clock: Clock,
    terminal: tuple[io.TextIOWrapper, Callable[[], str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("NO_COLOR", "1")
    (stream, seen), before = terminal, sys.stderr
    with Display(stream, "convert") as shown:
        with silent_stderr():  # as while an engine runs
            for second in range(6):
                clock.now = 100 + second
                shown(converting(1_000 * second, num_bytes=second << 20))
            print("Traceback", file=sys.stderr)
        shown.say("a message")
    assert sys.stderr is before
    text = seen()
    assert "Traceback" not in text
    assert (
        "converting: 5,000 of 10,000 images, 5 s left, 1,000 images/s, 1.0 MB/s, 0 of 10 shards"
        in text
    )
    assert "starting" in text[: text.index("converting: 0 of 10,000 images")]  # at once
    assert "convert: a message" in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)  # NO_COLOR
    assert text.endswith("\x1b[2K")  # the line is cleared
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


class Cell(io.StringIO):
    """As ipykernel's stream."""

    __module__ = "ipykernel.iostream"


def test_a_notebook_without_widgets_shows_lines(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    stream = Cell()
    with Display(stream, "verify", noun="records") as seen:
        for second in (0, 5, 11):
            clock.now = 100 + second
            seen(converting(int(1_000 * second)))
    assert stream.getvalue() == (
        "verify: converting: 11,000 of 10,000 records, 1,000 records/s, 0 of 10 shards\n"
    )


def test_a_narrow_terminal_shows_the_time_left_and_a_dumb_one_shows_lines(
    clock: Clock,
    terminal: tuple[io.TextIOWrapper, Callable[[], str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, seen = terminal
    for term, columns, expected in (
        ("xterm", "50", "converting: 7,000 of 10,000 images, 3 s left, 1,0…\r"),
        (
            "dumb",
            "50",
            "convert: converting: 7,000 of 10,000 images, 3 s left, 1,000 images/s, 0 of 10 "
            "shards\r\n",
        ),
    ):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("COLUMNS", columns)
        with Display(stream, "convert") as shown:
            shown(converting(1_000))
            clock.now += 5
            shown(converting(2_000))
            clock.now += 5
            shown(converting(7_000))
        assert expected in seen()


def test_a_stream_that_is_closed_ends_nothing(clock: Clock) -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w", buffering=1)
    with Display(stream, "convert") as shown:
        clock.now += 60
        shown(converting(1))
        shown.say("x")
    with pytest.raises(OSError, match="Broken pipe"):
        stream.close()


def paces(states: Iterable[tuple[float, Progress]]) -> Iterator[dict[str, float]]:
    """What is shown of the pace, at given seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(display.time, "monotonic", clock := Clock())
        patch.setattr(display, "LINE_S", 0.0)
        stream = io.StringIO()
        shown = Display(stream, "convert", progress_format="json")
        for second, state in states:
            clock.now = 100.0 + second
            shown(state)
    yield from map(json.loads, stream.getvalue().splitlines())


@given(
    st.integers(0, 1000),
    st.floats(0.5, 50),
    st.floats(0, 60),
)
def test_the_time_left_is_right_whatever_was_done_before(
    resumed: int, rate: float, start: float
) -> None:
    total = resumed + 100_000
    states = [
        (0.0, Progress("converting", resumed, total)),
        (start, Progress("converting", resumed, total)),
    ]
    # An engine that does nothing yet, then a jump.
    states += [(start + 1, Progress("converting", resumed + 7, total))]
    done = resumed + 7 + 1_000
    states += [(start + 1 + 1_000 / rate / 50, Progress("converting", done, total))]
    *_, found = paces(states)
    assert found["per_s"] == pytest.approx(50 * rate, abs=0.1)
    assert found["left_s"] == pytest.approx((total - done) / (50 * rate), abs=1)


def test_the_first_images_do_not_tell_the_time_left() -> None:
    """The first two images of 1,104 take five seconds, which promises 46 minutes.

    Codecs are loaded then.
    """
    states = [*enumerate([0, 0, 0, 0, 0, *range(2, 1_104, 100)])]
    found = [*paces((second, Progress("converting", done, 1_104)) for second, done in states)]
    left = {
        second: one["left_s"]
        for (second, _), one in zip(states, found, strict=True)
        if one["left_s"]
    }
    assert [*left] == [*range(6, 17)]
    assert all(0.5 < left[second] / (16.02 - second) < 2 for second in left if second < 16)


def test_one_is_singular() -> None:
    one = Progress("converting", 0, 1, num_shards=1)
    assert (
        display.describe(one, "images", Pace(0.0, 0.0, 0.0))
        == "converting: 0 of 1 image, 0 of 1 shard"
    )
    assert display.describe(Progress("listing", 1), "rows", Pace(0.0, 0.0, 0.0)) == "listing: 1 row"


def test_a_stage_without_numbers() -> None:
    assert display.describe(Progress("starting", 0), "images", Pace(0.0, 0.0, 0.0)) == "starting"


def test_a_plan_that_was_replaced_begins_anew() -> None:
    states = enumerate([converting(4_000), converting(5_000), converting(6_000), converting(10)])
    assert [one["per_s"] for one in paces(states)] == [0.0, 0.0, 1000.0, 0.0]


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 119, 125, 7_100, 12_000)] == [
        "0 s",
        "119 s",
        "2 min",
        "118 min",
        "3 h 20 min",
    ]
