"""What a long command shows while it runs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import sys
import types
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr import display
from beam_tfr.display import Display, Pace, State, duration
from beam_tfr.terminal import silent_stderr


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


def converting(done: int, total: int = 10_000, **more: int) -> State:
    return State("converting", done, total, num_shards=10, **more)


def test_a_line_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Display(stream, "convert") as shown:
        for second, state in (
            (0.0, State("listing", 0)),
            (1.9, State("listing", 3_000)),
            (10, State("listing", 30_000)),
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
        "convert: listing: 30,000 images, 3,000 images/s",
        "convert: converting: 7,000 of 10,000 images, 6 s left, 3 rejected, 500 images/s, 5.0 MB/s, 7 of 10 shards",
        r"convert: a message\x1b[31m",
    ]


def test_json_lines(clock: Clock) -> None:
    stream = io.StringIO()
    with Display(stream, "verify", what="records", log_format="json") as shown:
        shown(converting(0))
        clock.now += 10
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
        "per_s": 1000.0,
        "bytes_per_s": 4000000,
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
    clock: Clock, terminal: tuple[io.TextIOWrapper, Callable[[], str]], monkeypatch: pytest.MonkeyPatch
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
    assert "converting: 5,000 of 10,000 images, 5 s left, 1,000 images/s, 1.0 MB/s, 0 of 10 shards" in text
    assert "starting" in text[: text.index("converting: 0 of 10,000 images")]  # at once
    assert "convert: a message" in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)  # NO_COLOR
    assert text.endswith("\x1b[2K")  # the line is cleared
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


class Cell(io.StringIO):
    """As ipykernel's stream: what is displayed elsewhere does not go through it."""

    __module__ = "ipykernel.iostream"


def test_a_notebook_shows_one_line_in_place(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[str, list[str]] = {}

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown["cell"].append(data["text/plain"])

    def display_first(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        shown["cell"] = [data["text/plain"]]
        return Handle()

    module = types.ModuleType("IPython.display")
    module.display = display_first  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    stream = Cell()
    with Display(stream, "verify", what="records") as seen:
        for second in (0, 1, 2, 2.1, 3, 3.1):
            clock.now = 100 + second
            seen(converting(int(1_000 * second)))
        seen.say("a message")
        seen(converting(10_000))
    line = "verify: converting: {}, 0 of 10 shards"
    said = "verify: a message\n"
    assert shown["cell"] == [
        "verify: starting",
        line.format("1,000 of 10,000 records, 1,000 records/s"),
        line.format("2,000 of 10,000 records, 1,000 records/s"),
        line.format("3,000 of 10,000 records, 7 s left, 1,000 records/s"),
        said + line.format("3,000 of 10,000 records, 7 s left, 1,000 records/s"),
        said + "verify: done: 10,000 records in 3 s",
    ]
    assert stream.getvalue() == ""


def test_a_narrow_terminal_shows_the_time_left_and_a_dumb_one_shows_lines(
    clock: Clock, terminal: tuple[io.TextIOWrapper, Callable[[], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, seen = terminal
    for term, columns, expected in (
        ("xterm", "50", "converting: 7,000 of 10,000 images, 4 s left\r"),
        ("dumb", "50", "convert: converting: 7,000 of 10,000 images, 4 s left, 700 images/s, 0 of 10 shards\r\n"),
    ):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("COLUMNS", columns)
        with Display(stream, "convert") as shown:
            shown(converting(0))
            clock.now += 10
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


@given(
    st.integers(0, 1000),
    st.floats(0.1, 1000),
    st.floats(0, 60),
    st.floats(0.1, 0.9),
)
def test_the_time_left_is_right_whatever_was_done_before(resumed: int, rate: float, start: float, part: float) -> None:
    clock = Clock()
    pace, total = Pace(clock), resumed + 100_000
    pace.add(State("converting", resumed, total))
    clock.now += start  # an engine that does nothing yet
    pace.add(State("converting", resumed, total))
    done = int(100_000 * part)
    clock.now += done / rate
    found, _, left = pace.add(State("converting", resumed + done, total))
    assert found == pytest.approx(rate)
    assert left == pytest.approx((100_000 - done) / rate)


def test_no_time_left_is_shown_before_it_can_be_told() -> None:
    """The first two images of 1,104 take five seconds, since codecs are loaded, which promises 46 minutes."""
    clock = Clock()
    pace, shown = Pace(clock), dict[int, float]()
    for second, done in enumerate([0, 0, 0, 0, 0, *range(2, 1_104, 100)]):
        clock.now = 100.0 + second
        *_, left = pace.add(State("converting", done, 1_104))
        shown |= {second: left} if left else {}
    assert [*shown] == [*range(7, 17)]
    assert all(0.5 < left / (16 - second) < 2 for second, left in shown.items() if second < 16)
    for stage in ("sampling", "measuring, turn 2 of 3"):  # before others
        for done in (0, 100, 200):
            clock.now += 10
            assert pace.add(State(stage, done, 256 if stage == "sampling" else 0))[2] == 0
    for second in range(0, 80, 20):  # of a day
        clock.now += 20
        assert bool(pace.add(State("reading", second, 86_400))[2]) == (second == 60)


def test_one_is_singular() -> None:
    one = State("converting", 0, 1, num_shards=1)
    assert display.describe(one, "images", 0.0, 0.0, 0.0) == "converting: 0 of 1 image, 0 of 1 shard"
    assert display.describe(State("listing", 1), "rows", 0.0, 0.0, 0.0) == "listing: 1 row"


def test_a_stage_without_numbers_and_one_whose_numbers_tell_nothing() -> None:
    assert display.describe(State("starting", 0), "images", 0.0, 0.0, 0.0) == "starting"
    measuring = State("measuring, turn 3 of 3", 331, 1_104)
    assert display.describe(measuring, "images", 90.0, 0.0, 8.6) == (
        "measuring, turn 3 of 3: 30%, 9 s left, 90 images/s"
    )


def test_a_plan_that_was_replaced_begins_anew() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.add(converting(5_000))
    clock.now += 1
    assert pace.add(converting(6_000)) == (1000.0, 0.0, 0.0)
    assert pace.add(converting(10)) == (0.0, 0.0, 0.0)


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 119, 125, 7_100, 12_000)] == ["0 s", "119 s", "2 min", "118 min", "3 h 20 min"]
