"""`beam-tfr update` on gs:// gives the bytes of a fresh conversion.

Also tests what is read for them, and faults of the service.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import beam_tfr
from tests.fake_gcs import FakeGcs
from tests.living_photos import (
    FEW,
    OTHERS,
    REJECTS,
    ROUNDS,
    Photos,
    choose_plan,
    files_of,
    fresh,
    paint,
    updated,
)

SMALL = {"encoding": "jpeg", "image_size": 32}
SHARDS = 6
SAMPLE = 32  # images read to estimate the number of shards


def dataset_in(fake: FakeGcs, folder: str = "out") -> dict[str, bytes]:
    """Name -> bytes of the objects of a dataset."""
    above = f"{folder}/"
    names = [name.removeprefix(above) for name in fake.names() if name.startswith(above)]
    return {name: fake.get(above + name) for name in names if name.partition("/")[0] not in OTHERS}


def downloads(fake: FakeGcs, prefix: str) -> list[str]:
    """The objects below a prefix whose bytes were asked for since this was last called."""
    log = fake.take_log()
    return [of["name"] for of in log if of["name"].startswith(prefix) and of.get("alt") == "media"]


class Mirror:
    """Objects that follow a folder; what did not change keeps its generation."""

    def __init__(self, fake: FakeGcs, photos: Photos) -> None:
        self._fake, self._photos, self._there = fake, photos, dict[str, tuple[bytes, int]]()
        self.sync()

    def sync(self) -> None:
        now = {
            f"photos/{path.relative_to(self._photos.folder)}": (
                path.read_bytes(),
                path.stat().st_mtime_ns,
            )
            for path in self._photos.all()
        }
        for name, of in now.items():
            if self._there.get(name) != of:
                self._fake.put(name, of[0])
        for name in self._there.keys() - now.keys():
            self._fake.delete(name)
        self._there = now


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    return Photos(tmp_path / "photos", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "output", "rounds"), [("gs", "gs", ROUNDS), ("disk", "gs", FEW), ("gs", "disk", FEW)]
)
def test_updates_in_a_row_on_gcs(
    fake: FakeGcs, photos: Photos, tmp_path: Path, source: str, output: str, rounds: int
) -> None:
    mirror, chance = Mirror(fake, photos), random.Random(2)
    local, to = f"{photos.folder}/**", "gs://b/out" if output == "gs" else tmp_path / "d"
    pattern: Any = "gs://b/photos/**" if source == "gs" else local
    plan = choose_plan(chance)
    beam_tfr.convert(input=pattern, output=to, progress=False, name="d", **REJECTS, **SMALL, **plan)
    for number in range(rounds):
        photos.change()
        mirror.sync()
        given = {} if number % 2 else choose_plan(chance)
        plan |= given
        done = updated(to, input=pattern, **REJECTS, **given)
        found = dataset_in(fake) if output == "gs" else files_of(tmp_path / "d")
        assert found == fresh(tmp_path / "fresh", input=local, **REJECTS, **SMALL, **plan), (
            number,
            plan,
        )
        assert beam_tfr.verify(to, progress=False).ok
        assert min(done.changed["added"], done.changed["removed"]) > 0


@pytest.fixture
def bucket(fake: FakeGcs, photos: Photos) -> Mirror:
    """Photos as objects, more than a sample, converted to gs://b/out."""
    for _ in range(2 * SAMPLE):
        photos.add("cat")
    mirror = Mirror(fake, photos)
    convert()
    fake.take_log()
    return mirror


def convert(output: str = "gs://b/out", source: str = "gs://b/photos/**", **options: Any) -> Any:
    options = {"num_shards": SHARDS, **SMALL, **options}
    return beam_tfr.convert(
        input=source, output=output, progress=False, name="d", **REJECTS, **options
    )


def update(source: str = "gs://b/photos/**", output: str = "gs://b/out", **options: Any) -> Any:
    return updated(output, input=source, **REJECTS, **options)


def shards_of(fake: FakeGcs, folder: str = "out") -> dict[str, str]:
    """Name -> generation of the shards and contents of a dataset."""
    import urllib.request

    url = f"{fake.address}/storage/v1/b/b/o?prefix={folder}/"
    with urllib.request.urlopen(url) as response:
        items = json.load(response)["items"]
    found = {of["name"].removeprefix(f"{folder}/"): of["generation"] for of in items}
    fake.take_log()
    return {
        name: of
        for name, of in found.items()
        if "-of-" in name and name.partition("/")[0] not in OTHERS
    }


def test_nothing_changed(fake: FakeGcs, bucket: Mirror) -> None:
    before, generations = dataset_in(fake), shards_of(fake)
    assert update().changed == {}
    assert len(downloads(fake, "photos/")) <= SAMPLE
    assert (dataset_in(fake), shards_of(fake)) == (before, generations)
    assert not any(name.startswith("out/.beam_tfr/") for name in fake.names())


@pytest.mark.slow
def test_a_bucket_copied_to_another_place_is_not_read(
    fake: FakeGcs, bucket: Mirror, photos: Photos
) -> None:
    before, generations = dataset_in(fake), shards_of(fake)
    fake.put_folder(photos.folder, "copied")
    fake.take_log()
    assert update("gs://b/copied/**").changed == {}
    assert len(downloads(fake, "copied/")) <= SAMPLE
    assert (dataset_in(fake), shards_of(fake)) == (before, generations)
    update("gs://b/copied/**")  # which knows the new generations
    shards = [name for name in downloads(fake, "out/") if name.endswith(".tfrecord.gz")]
    assert shards == ["out/d-train-00000-of-00006.tfrecord.gz"]  # the example of the summary


def test_an_object_that_is_replaced(
    fake: FakeGcs, bucket: Mirror, photos: Photos, tmp_path: Path
) -> None:
    generations = shards_of(fake)
    sound = [of for of in photos.all() if of.read_bytes()[:2] == b"\xff\xd8"]
    fake.put(
        f"photos/{sound[0].relative_to(photos.folder)}", sound[0].read_bytes()
    )  # by equal bytes
    while (data := sound[1].read_bytes()) == fake.get(
        f"photos/{sound[1].relative_to(photos.folder)}"
    ):
        paint(sound[1], photos.chance)
    while data[:2] != b"\xff\xd8":
        paint(sound[1], photos.chance)
        data = sound[1].read_bytes()
    bucket.sync()
    fake.take_log()
    done = update()
    assert done.changed == {"added": 0, "removed": 0, "changed": 1, "relabelled": 0}
    read = downloads(fake, "photos/")
    assert f"photos/{sound[1].relative_to(photos.folder)}" in read
    assert len(read) <= SAMPLE + 1
    assert dataset_in(fake) == fresh(
        tmp_path / "fresh", input=f"{photos.folder}/**", num_shards=SHARDS, **REJECTS, **SMALL
    )
    now = shards_of(fake)
    assert now.keys() == generations.keys()
    assert (
        len([name for name in now if now[name] != generations[name]]) == 2
    )  # a shard and its contents


@pytest.mark.slow
def test_faults_of_the_service(
    fake: FakeGcs, bucket: Mirror, photos: Photos, tmp_path: Path
) -> None:
    for _ in range(2):
        photos.change()
        bucket.sync()
        fake.set(fail_share=0.15)
        try:
            update()
        finally:
            fake.set()
        expected = fresh(
            tmp_path / "fresh", input=f"{photos.folder}/**", num_shards=SHARDS, **REJECTS, **SMALL
        )
        assert dataset_in(fake) == expected
        assert not any(name.startswith("out/.beam_tfr/") for name in fake.names())
