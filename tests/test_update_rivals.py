"""Updates that are killed at their end, or that meet other runs.

Also those whose datasets are read meanwhile.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import beam_tfr
from beam_tfr.dataset.base import planned_shards
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.launch import repairing
from beam_tfr.output import lock, sidecars
from beam_tfr.output.known import read_sources
from beam_tfr.reader import load
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.sequence import Records
from beam_tfr.torch import ImageDataset
from tests.conftest import Run
from tests.living_photos import REJECTS, Photos, files_of, fresh, paint, updated

Command = Callable[..., Run]
NUMBER, SIDE = 600, 128  # more photos than readers read ahead
REPLACED = "another dataset replaced "
OPTIONS: dict[str, Any] = {
    "encoding": "raw",
    "image_size": 16,
    "num_shards": 4,
    "compression": "gzip:2",
}


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    return Photos(tmp_path / "photos", 1)


@pytest.fixture
def dataset(photos: Photos, tmp_path: Path) -> Path:
    beam_tfr.convert(
        input=f"{photos.folder}/**", output=tmp_path / "d", progress=False, **REJECTS, **OPTIONS
    )
    return tmp_path / "d"


def expected(photos: Photos, tmp_path: Path, **options: Any) -> dict[str, bytes]:
    return fresh(tmp_path / "fresh", input=f"{photos.folder}/**", **REJECTS, **OPTIONS | options)


def update(dataset: Path, photos: Photos, **options: Any) -> Any:
    return updated(dataset, input=f"{photos.folder}/**", **REJECTS, **options)


def sound(photos: Photos) -> list[Path]:
    """The photos that are images."""
    return [path for path in photos.all() if path.read_bytes()[:2] == b"\xff\xd8"]


def replace(path: Path, photos: Photos) -> None:
    """Replaces a photo by another image."""
    before = path.read_bytes()
    while path.read_bytes() == before or path.read_bytes()[:2] != b"\xff\xd8":
        paint(path, photos.chance)


def identities(dataset: Path) -> dict[str, tuple[int, int]]:
    found = {path.name: path.stat() for path in dataset.rglob("*") if "-of-" in path.name}
    return {
        name: (of.st_ino, of.st_mtime_ns)
        for name, of in found.items()
        if not name.endswith(".json")
    }


# What stays, and what is kept


def test_shards_without_changes_keep_their_files(
    dataset: Path, photos: Photos, tmp_path: Path
) -> None:
    before = identities(dataset)
    replace(sound(photos)[3], photos)
    assert update(dataset, photos).changed == {
        "added": 0,
        "removed": 0,
        "changed": 1,
        "relabelled": 0,
    }
    assert files_of(dataset) == expected(photos, tmp_path)
    after = identities(dataset)
    assert after.keys() == before.keys()
    # a shard and its contents
    assert len([name for name in after if after[name] != before[name]]) == 2


@pytest.mark.slow
def test_without_an_input_nothing_is_lost_with_a_sidecar(
    dataset: Path, photos: Photos, tmp_path: Path
) -> None:
    before = files_of(dataset)
    (dataset / ".sources" / "train-00002-of-00004.json").write_text("damaged")
    with pytest.raises(
        DataError,
        match=r"lacks train-00002-of-00004; `beam-tfr update DIR --input …` writes it again",
    ):
        updated(dataset, num_shards=2)
    assert files_of(dataset) == before | {
        name: data for name, data in files_of(dataset).items() if name[0] == "."
    }
    update(dataset, photos)
    assert files_of(dataset) == before
    updated(dataset, num_shards=2)
    assert files_of(dataset) == expected(photos, tmp_path, num_shards=2)


@pytest.mark.slow
def test_switches_of_a_dataset_stay(beam_tfr: Command, photos: Photos, tmp_path: Path) -> None:
    flags = [
        "--input",
        f"{photos.folder}/**",
        "--output",
        tmp_path / "d",
        "--ignore_orientation",
        "--quiet",
    ]
    assert beam_tfr("convert", *flags, "--image_size", "16", "--max_rejects", "0.9").code == 0
    before = files_of(tmp_path / "d")
    assert (
        beam_tfr("update", tmp_path / "d", *flags[:2], "--max_rejects", "0.9", "--quiet").code == 0
    )
    assert files_of(tmp_path / "d") == before
    assert beam_tfr("update", tmp_path / "d", "--num_shards", "2", "--quiet").code == 0
    options = read_manifest(str(tmp_path / "d")).options
    assert (options["ignore_orientation"], options["num_shards"]) == (True, 2)


# Kills at the end: those at any moment are in `tests.faults`


class Killed(BaseException):
    pass


@pytest.fixture(params=["before", "within"])
def killed_at_its_end(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Any], None]:
    """Calls something that is killed after its switch: before sidecars are kept, or within."""
    really, place = sidecars.move_sidecars, request.param

    def keep(output: str, entries: Any, shards: Any) -> None:
        if place == "within":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sidecars.storage, "delete_all", lambda _: None)
                really(output, [*entries][::2], shards)
        raise RunError("killed")

    def call(function: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sidecars, "move_sidecars", keep)
            function()

    return call


def has_sources(dataset: Path) -> bool:
    """Whether the sidecars of all shards are kept, and no other."""
    shards = planned_shards(read_manifest(str(dataset)))
    names = {path.name for path in (dataset / ".sources").iterdir()}
    return all(read_sources(str(dataset), shard) for shard in shards if shard.images) and names == {
        f"{shard.name}.json" for shard in shards
    }


@pytest.mark.slow
def test_an_update_that_is_killed_after_its_switch_is_ended_by_the_next(
    dataset: Path, photos: Photos, tmp_path: Path, killed_at_its_end: Callable[[Any], None]
) -> None:
    photos.change()
    killed_at_its_end(lambda: update(dataset, photos))
    assert (dataset / ".beam_tfr" / "plan.json").exists()
    assert not has_sources(dataset)
    updated(dataset, num_shards=3)
    assert files_of(dataset) == expected(photos, tmp_path, num_shards=3)
    assert has_sources(dataset)
    assert not (dataset / ".beam_tfr").exists()


@pytest.mark.slow
def test_a_removal_that_is_killed_after_its_switch_can_be_repeated(
    beam_tfr: Command,
    dataset: Path,
    photos: Photos,
    tmp_path: Path,
    killed_at_its_end: Callable[[Any], None],
) -> None:
    gone = [sound(photos)[0], next(path for path in photos.all() if path not in sound(photos))]
    (tmp_path / "keys").write_text("".join(f"{path.relative_to(photos.folder)}\n" for path in gone))
    command = ["remove", dataset, "--keys", tmp_path / "keys"]
    killed_at_its_end(lambda: beam_tfr(*command))
    for told in ("removed: 0 records", "removed: 0 records"):
        run = beam_tfr(*command)
        assert run.code == 0, run.err
        assert told in run.out
    for path in gone:
        path.unlink()
    found = files_of(dataset)
    del found["removed.txt"]
    assert found == expected(photos, tmp_path)
    assert has_sources(dataset)
    assert not (dataset / ".beam_tfr").exists()
    (tmp_path / "keys").write_text("no/such.jpg\n")
    assert beam_tfr(*command, "--allow_missing").code == 0
    assert f"key {sha256_hex(b'no/such.jpg')}" in (dataset / "removed.txt").read_text().splitlines()


# Other runs


def test_a_folder_that_another_run_holds_is_left_alone(
    beam_tfr: Command, dataset: Path, photos: Photos, tmp_path: Path
) -> None:
    photos.change()
    before = files_of(dataset)
    (tmp_path / "keys").write_text("cat/1.jpg\n")
    calls = [
        ["update", dataset, "--input", f"{photos.folder}/**"],
        ["remove", dataset, "--keys", tmp_path / "keys"],
    ]
    with lock.hold_lock(str(dataset), "another"):
        for call in calls:
            run = beam_tfr(*call)
            assert (run.code, run.err.count("another run holds")) == (1, 1), run.err
    assert files_of(dataset) == before


@pytest.mark.slow
def test_a_repair_whose_dataset_was_updated_meanwhile_writes_nothing(
    dataset: Path, photos: Photos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = next(dataset.glob("*.tfrecord.gz"))
    data = broken.read_bytes()
    broken.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    really = repairing.run_step

    def start(*arguments: Any, **named: Any) -> Any:
        updated(dataset, compression="gzip:9", input=f"{photos.folder}/**", **REJECTS)
        return really(*arguments, **named)

    monkeypatch.setattr(repairing, "run_step", start)
    with pytest.raises(RunError, match="another run has replaced the dataset"):
        repairing.repair(str(dataset), {"input": [f"{photos.folder}/**"], **REJECTS})
    monkeypatch.undo()
    update(dataset, photos)  # the damaged shard is there, but never copied
    assert files_of(dataset) == expected(photos, tmp_path, compression="gzip:9")


@pytest.mark.slow
@pytest.mark.parametrize("other", ["update", "convert", "repair"])
def test_of_an_update_and_another_run_one_works(
    dataset: Path, photos: Photos, tmp_path: Path, other: str
) -> None:
    for _ in range(60):
        photos.add("cat")
    if other == "convert":
        replace(sound(photos)[0], photos)
    loose = ["--max_rejects", "0.9", "--quiet"]
    source = ["--input", f"{photos.folder}/**"]
    name = read_manifest(str(dataset)).name
    commands = {
        "update": ["update", dataset, *source, *loose, "--max_removed", "1.0"],
        "convert": ["convert", "--output", dataset, "--name", name, *source, *loose],
        "repair": ["repair", dataset, *source, "--quiet"],
    }
    for first in dict.fromkeys(("update", other)):
        photos.change()
        calls = [commands["update"], commands[other]]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "beam_tfr", *map(str, call)],
                stderr=subprocess.PIPE,
                text=True,
            )
            for call in (calls if first == "update" else calls[::-1])
        ]
        ended = [(run.communicate()[1], run.returncode) for run in running]
        # A conversion of other input is refused, and while it holds the folder so is an update.
        assert other == "convert" or 0 in [code for _, code in ended], ended
        assert not any("Traceback" in said for said, _ in ended), ended
        for said, code in ended:
            assert code == 0 or any(
                text in said
                for text in (
                    "another run",
                    "holds a dataset with different",
                    "the input has changed",
                    "another dataset replaced",
                )
            ), said
    # of all changes, if both were refused each time
    update(dataset, photos, max_removed=1.0)
    assert files_of(dataset) == expected(photos, tmp_path)


# Readers


def by_tensorflow(folder: Path) -> Iterator[Any]:
    yield from (
        images.numpy() for images, _ in load(folder, split="train", batch_size=2, shuffle=True)
    )


def by_torch(folder: Path) -> Iterator[Any]:
    yield from (
        images for images, _ in ImageDataset(folder, split="train", batch_size=2, shuffle=True)
    )


def by_number(folder: Path) -> Iterator[Any]:
    records = Records(folder, split="train")
    yield from (records[number][0] for number in range(len(records)))


CHANGES: dict[str, dict[str, Any]] = {
    "other photos": {},
    "other shards": {"num_shards": 3},
    "other names of files": {"compression": "none"},
    "other bytes of the same records": {"compression": "gzip:9"},
}


@pytest.fixture(scope="module")
def colored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of photos of the same names: those of one are 10 everywhere, of the other 20."""
    folder = tmp_path_factory.mktemp("colored")
    for value in (10, 20):
        Path(folder, f"{value}", "a").mkdir(parents=True)
        for number in range(NUMBER):
            Image.new("RGB", (SIDE, SIDE), (value,) * 3).save(
                folder / f"{value}" / "a" / f"{number}.png"
            )
    return folder


@pytest.fixture(scope="module")
def of_tens(colored: Path) -> Path:
    """A dataset of the photos that are 10."""
    flags = {"encoding": "raw", "image_size": SIDE, "num_shards": 8, "compression": "gzip:1"}
    beam_tfr.convert(input=f"{colored}/10/**", output=colored / "d", progress=False, **flags)
    return colored / "d"


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_readers_that_began_before_an_update_never_mix_datasets(
    colored: Path, of_tens: Path, tmp_path: Path, change: str
) -> None:
    dataset, photos = (
        shutil.copytree(of_tens, tmp_path / "d"),
        20 if change == "other photos" else 10,
    )
    readers = {read.__name__: read(dataset) for read in (by_tensorflow, by_torch, by_number)}
    seen = {name: np.unique(next(images)).tolist() for name, images in readers.items()}
    updated(dataset, input=f"{colored}/{photos}/**", **CHANGES[change])
    said = dict.fromkeys(readers, "")
    for name, rest in readers.items():
        try:
            for images in rest:
                seen[name] += np.unique(images).tolist()
        except (DataError, RunError, OSError, tf.errors.OpError) as error:
            said[name] = str(error)
    assert {name: {*values} for name, values in seen.items()} == {name: {10} for name in readers}
    assert all(REPLACED in text for text in said.values() if text), said
    if change == "other photos":
        assert any(said.values()), said  # one that is fast has read all
    for read in (by_tensorflow, by_torch, by_number):
        assert {value for images in read(dataset) for value in np.unique(images).tolist()} == {
            photos
        }
