"""A dataset that is replaced: killed anywhere, and read meanwhile."""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from beam_tfr import storage
from beam_tfr.output import publish, switch
from beam_tfr.output.claim import Claim
from beam_tfr.reader import load
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.torch import ImageDataset
from beam_tfr.verification import verify
from tests.conftest import Run, wait_for
from tests.publishing import build, files_of, generation, make_infos, make_plan, totals_of, write

Command = Callable[..., Run]
CALLS = (
    "write_bytes",
    "delete",
    "move",
    "find",
    "sync_folder",
    "delete_all",
)  # of `storage`, by a publisher


class Killed(BaseException):
    pass


def kill_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Lets the call after so many of `storage` raise, and all later ones."""
    left = [calls]

    def mortal(really: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return really(*arguments, **named)

    for name in CALLS:
        monkeypatch.setattr(storage, name, functools.partial(mortal, getattr(storage, name)))


def old_and_new(folder: Path) -> tuple[dict[str, bytes], dict[str, bytes], Callable[[], object]]:
    """The files of the dataset in a folder, those of its successor, and what replaces it."""
    plan, other = make_plan(), make_plan(name="e", options={**make_plan().options, "seed": 1})
    write(folder / "alone", other, infos := make_infos(other))
    new = files_of(folder / "alone")
    write(folder / "out", plan, make_infos(plan))
    old, out = files_of(folder / "out"), folder / "out"
    totals = totals_of(other, build(out, other, infos), 1.0)
    claimed = Claim(generation(out), overwrite=True)
    return old, new, lambda: publish.publish_dataset(str(out), other, totals, claimed)


@pytest.mark.parametrize(
    ("old", "name", "built"),
    [
        ("../mine", "labels.txt", "evil"),
        ("/ABSOLUTE/mine", "labels.txt", "evil"),
        ("labels.txt", "../mine", "evil"),
        ("labels.txt", "/ABSOLUTE/mine", "evil"),
        ("labels.txt", "contents/../../mine", "evil"),
        ("labels.txt", "labels.txt", "../../mine"),
        ("labels.txt", "mine", "evil"),
    ],
)
def test_a_switch_from_elsewhere_touches_no_file_that_is_not_of_a_dataset(
    old: str, name: str, built: str, tmp_path: Path
) -> None:
    """As in a folder that was copied from a stranger, with times of 0."""
    plan = make_plan()
    out = tmp_path / "out"
    write(out, plan, make_infos(plan))
    work = out / ".beam_tfr"
    work.mkdir(exist_ok=True)
    manifest = out / "manifest.json"
    (work / "manifest").write_bytes(manifest.read_bytes())
    victims = [tmp_path / "mine", out / "mine"]
    for victim in victims:
        victim.write_text("mine")
    (work / "evil").write_text("evil")
    for path in (work / "manifest", work / "evil", manifest, *victims):
        os.utime(path, (0, 0))
    old, name = (text.replace("/ABSOLUTE", str(tmp_path)) for text in (old, name))
    about = {
        "replaces": 0,
        "old": [[old, 0]],
        "files": [
            [name, built, 4, 0],
            ["manifest.json", "manifest", manifest.stat().st_size, 0],
        ],
    }
    (work / "switch.json").write_text(json.dumps(about))
    assert not switch.complete_switch(str(out))
    assert [victim.read_text() for victim in victims] == ["mine", "mine"]
    assert manifest.exists()
    assert not (work / "switch.json").exists()


@pytest.mark.parametrize(
    "content",
    [
        '{"replaces": Infinity, "old": [], "files": []}',
        '{"replaces": 0, "old": [], "files": [[5, "a", 4, 0], ["manifest.json", "m", 4, 0]]}',
        '{"replaces": 0, "old": [], "files": [["labels.txt", [], 4, 0]]}',
        '{"replaces": 0, "old": [], "files": []}',
        "[" * 99_999,
        f'{{"old": [{"[]," * 1_000_000}[]]}}',
    ],
    ids=lambda content: content[:60],
)
def test_a_switch_with_wrong_values_is_removed(content: str, tmp_path: Path) -> None:
    plan = make_plan()
    write(tmp_path, plan, make_infos(plan))
    before = files_of(tmp_path)
    path = tmp_path / ".beam_tfr" / "switch.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    assert not switch.complete_switch(str(tmp_path))
    assert files_of(tmp_path) == before


@pytest.mark.slow
def test_a_publisher_killed_anywhere_leaves_the_old_dataset_or_what_the_next_run_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for calls in range(100):
        folder = tmp_path / str(calls)
        old, new, replace = old_and_new(folder)
        out, killed = folder / "out", False
        with monkeypatch.context() as patch:
            kill_after(patch, calls)
            try:
                replace()
            except Killed:
                killed = True
        left = files_of(out)
        if "manifest.json" in left:
            assert left in (old, new)  # whole, with nothing beside it
        completed = switch.complete_switch(str(out))
        assert files_of(out) == (old if left == old and not completed else new)
        assert not switch.complete_switch(str(out))
        outcomes.append("old" if files_of(out) == old else "new")
        if not killed:
            break
    assert outcomes == sorted(outcomes, reverse=True)  # old, …, new, …
    assert outcomes.count("old") > 3
    assert outcomes.count("new") > 10


def test_a_switch_is_void_once_another_dataset_was_published_or_its_files_are_gone(
    tmp_path: Path,
) -> None:
    old, _, replace = old_and_new(tmp_path)
    out = tmp_path / "out"

    def stop() -> None:
        raise Killed

    decided = tmp_path / "switch.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switch, "complete_switch", lambda _: stop())
        with pytest.raises(Killed):
            replace()
    decided.write_bytes((out / ".beam_tfr" / "switch.json").read_bytes())
    for built in (out / ".beam_tfr").glob("test-00001-*records-*"):
        built.rename(tmp_path / "away")
    assert not switch.complete_switch(str(out))
    assert files_of(out) == old
    (out / ".beam_tfr" / "switch.json").write_bytes(decided.read_bytes())
    (tmp_path / "away").rename(built)
    os.utime(built, (1, 1))  # as in a copy of the folder
    assert not switch.complete_switch(str(out))
    (out / ".beam_tfr" / "switch.json").write_bytes(decided.read_bytes())
    (out / "manifest.json").write_bytes(old["manifest.json"])  # of another generation
    assert not switch.complete_switch(str(out))
    assert files_of(out) == old
    assert not (out / ".beam_tfr" / "switch.json").exists()


def test_a_folder_in_the_way_of_a_switch_is_told_before_it_begins(tmp_path: Path) -> None:
    old, _, replace = old_and_new(tmp_path)
    out = tmp_path / "out"
    (out / "labels.txt").unlink()
    (out / "labels.txt").mkdir()
    with pytest.raises(RunError, match=r"labels.txt is a folder; move it away"):
        replace()
    assert files_of(out) == {name: data for name, data in old.items() if name != "labels.txt"}


@pytest.mark.slow
def test_a_switch_whose_files_were_removed_after_it_began_is_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for calls in range(100):
        _, _, replace = old_and_new(tmp_path / str(calls))
        out = tmp_path / str(calls) / "out"
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            kill_after(patch, calls)
            replace()
        left = files_of(out)
        if "manifest.json" not in left and len([*(out / ".beam_tfr").glob("*.records-*")]) < 5:
            break
    for name in left:
        (out / name).unlink()
    assert not switch.complete_switch(str(out))
    assert not (out / ".beam_tfr" / "switch.json").exists()


def test_of_two_runs_that_complete_a_switch_one_puts_its_manifest(tmp_path: Path) -> None:
    _, new, replace = old_and_new(tmp_path)
    out = tmp_path / "out"
    really_move, calls = storage.move, []

    def move(source: str, target: str, **how: Any) -> None:
        calls.append(target)
        if len(calls) == 3:  # suspended here, while another run takes over
            assert switch.complete_switch(str(out))
            assert files_of(out) == new
            (out / "manifest.json").unlink()  # to be replaced in turn
        really_move(source, target, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "move", move)
        with pytest.raises(RunError, match="another run published a different dataset"):
            replace()
    assert "manifest.json" not in files_of(out)


def test_a_run_that_fails_leaves_the_dataset_that_it_would_replace_and_says_so(
    beam_tfr: Command, photos: Path, finished: Path
) -> None:
    before = files_of(finished)
    (photos / "train" / "hat" / "text.jpg").write_text("no image")
    flags = ["--layout", "{split}/{label}/*", "--name", "other", "--overwrite", "--max_rejects"]
    run = beam_tfr("convert", "--input", photos, "--output", finished, *flags, 0)
    assert run.code == 1
    assert f"\nThe dataset in {finished} is unchanged" in run.err
    assert files_of(finished) == before
    assert beam_tfr("verify", finished).code == 0
    assert beam_tfr("inspect", finished).code == 0
    run = beam_tfr("convert", "--input", photos, "--output", finished, *flags, 1)
    assert (run.code, {path.name.partition("-")[0] for path in finished.glob("*.tfrecord.gz")}) == (
        0,
        {"other"},
    )
    assert not (finished / ".beam_tfr").exists()
    next(finished.glob("*.tfrecord.gz")).unlink()
    run = beam_tfr("inspect", finished, "--split", "train")
    assert run.code == 1
    assert "problem: " in run.out + run.err


NUMBER = 200


@pytest.fixture
def colored(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of 200 images: those of one are 10 everywhere, of the other 20."""
    for value in (10, 20):
        for number in range(NUMBER):
            path = tmp_path / f"{value}" / "a" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            PIL.Image.new("RGB", (8, 8), (value, value, value)).save(path)
    return tmp_path / "10", tmp_path / "20"


def by_tensorflow(folder: str) -> Iterator[np.ndarray]:
    for images, _ in load(folder, split="train", batch_size=16, shuffle=True):
        yield images.numpy()


def by_torch(folder: str) -> Iterator[np.ndarray]:
    for images, _ in ImageDataset(folder, split="train", batch_size=16, shuffle=True):
        yield images


def read_until(
    ended: Path, epochs: Path, read_epoch: Callable[[str], Iterator[np.ndarray]], folder: str
) -> list[str]:
    """Reads epochs in a process of its own until a file exists, and adds what they held to another.

    Returns:
        What must not be.
    """
    wrong: list[str] = []
    while not ended.exists():
        seen: set[int] = set()
        number, error = 0, ""
        try:
            for images in read_epoch(folder):
                seen |= {*np.unique(images).tolist()}
                number += len(images)
        except (DataError, RunError, OSError, tf.errors.OpError) as raised:
            error = str(raised)
        if len(seen) > 1 or (not error and number != NUMBER):
            wrong.append(f"{number} {seen} {error}")
        if error and not any(
            text in error for text in ("another dataset replaced", "is being replaced")
        ):
            wrong.append(error)
        with epochs.open("a") as file:
            file.write("an error\n" if error else f"{seen}\n")
    return wrong


@pytest.mark.slow
def test_readers_get_one_dataset_or_the_other_while_it_is_replaced(
    beam_tfr: Command, colored: tuple[Path, Path], tmp_path: Path
) -> None:
    # Files of both have the same names and sizes, and nothing but the manifest tells them apart.
    out = tmp_path / "out"
    flags = [
        "--output",
        out,
        "--encoding",
        "raw",
        "--compression",
        "none",
        "--image_size",
        8,
        "--num_shards",
        8,
    ]

    def convert(source: Path, *more: str) -> None:
        assert beam_tfr("convert", "--input", source, *flags, "--json", *more).code == 0

    convert(colored[0])
    wrong: list[str] = []

    def check() -> None:
        while not ended.exists():
            try:
                report = verify(str(out), threads=1)
                if not report.ok:
                    wrong.append(f"{report.problems[:3]}")
            except DataError as error:
                if "replaced" not in str(error):
                    wrong.append(str(error))

    # As training does, readers have processes of their own. No `Manager` tells them anything: Beam
    # replaces what its proxies are pickled by, once something imports
    # `apache_beam.utils.multi_process_shared`.
    ended, epochs = tmp_path / "ended", tmp_path / "epochs"
    epochs.touch()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        reading = [
            pool.submit(read_until, ended, epochs, read, str(out))
            for read in (by_tensorflow, by_torch)
        ]
        checking = threading.Thread(target=check)
        checking.start()
        try:
            for held in ("{20}", "{10}"):
                convert(colored[held == "{20}"], "--overwrite")
                wait_for(lambda held=held: held in epochs.read_text().splitlines())
            for number in range(2):
                convert(colored[(number + 1) % 2], "--overwrite")
        finally:
            ended.touch()
            checking.join()
        for read in reading:
            wrong += read.result()
    assert not wrong, wrong[:5]
