"""A look at an input takes bounded memory and time, whatever the input is made of."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import first_look, storage
from beam_tfr.launch import bounds
from beam_tfr.launch.bounds import bounded_look
from beam_tfr.schema.errors import DataError
from beam_tfr.storage import opened
from tests.conftest import Run
from tests.converted import write_photos


def loop_for_ever() -> None:
    while True:
        sum(range(1000))


def grow_for_ever() -> None:
    held = []
    while True:
        held.append(b"x" * 1_000_000)


def spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_BYTES", 64 << 20)
    monkeypatch.setattr(bounds, "MOST_S", 0.5)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize(
    ("look", "excess"), [(loop_for_ever, "s of CPU time"), (grow_for_ever, "GB of memory")]
)
def test_a_look_that_never_ends_is_ended(
    look: Callable[[], None], excess: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"path,class\n")
    storage.read_bytes(str(path))
    with pytest.raises(DataError, match=rf"{excess}.*{re.escape(str(path))}"), bounded_look():
        look()


@pytest.mark.usefixtures("small_bounds")
def test_the_largest_files_and_the_last_one_are_named(tmp_path: Path) -> None:
    sizes = {"before": 90, "1": 3, "2": 5, "3": 1, "4": 4, "last": 2}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    storage.read_bytes(str(tmp_path / "before"))
    opened.forget_paths()
    for name in [*sizes][1:]:
        storage.read_bytes(str(tmp_path / name))
    with pytest.raises(DataError) as caught, bounded_look():
        loop_for_ever()
    named = re.findall(rf"{re.escape(str(tmp_path))}/(\w+)", str(caught.value))
    assert named == ["2", "4", "last"]


@pytest.mark.usefixtures("small_bounds")
def test_an_exception_that_is_swallowed_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_PATIENCE_S", 0.1)
    attempts = []

    def swallow_twice() -> None:
        while True:
            try:
                loop_for_ever()
            except BaseException:
                attempts.append(None)
                if len(attempts) > 2:
                    raise

    with pytest.raises(DataError), bounded_look():
        swallow_twice()
    assert len(attempts) == 3


@pytest.mark.usefixtures("small_bounds")
def test_bytes_that_are_opened_allow_more(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    path.write_bytes(bytes(4 << 20))
    with bounded_look():
        storage.read_bytes(str(path))
        held = b"x" * (128 << 20)
    assert held


@pytest.mark.usefixtures("small_bounds")
def test_nothing_comes_after_a_look() -> None:
    for _ in range(5):
        with bounded_look():
            spend(0.1)
    spend(0.6)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("command", ["plan", "convert"])
def test_commands_bound_their_look(
    command: str, beam_tfr: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_photos(tmp_path / "in")
    monkeypatch.setattr(first_look, "describe_mask_folders", lambda *_, **__: loop_for_ever())
    arguments = ["--input", tmp_path / "in", "--layout", "{split}/{label}/*"]
    run = beam_tfr(command, *arguments, "--output", tmp_path / "out")
    assert run.code == 1
    assert "looking at the input took" in run.err
    assert not (tmp_path / "out").exists()
