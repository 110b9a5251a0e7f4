"""Splits that can be trusted, as a user makes them, and their laws for random sets."""

from __future__ import annotations

import collections
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import beam_tfr as package
from beam_tfr import reader
from tests.conftest import Run
from tests.updates import convert, files_of, update

Command = Callable[..., Run]
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}
SIZES = {"dress": 60, "hat": 25, "pants": 30, "shirt": 38, "shoes": 45, "skirt": 28}


def draw_photo(number: int) -> np.ndarray:
    """A picture that has nothing in common with others: uint8 [150, 200, 3]."""
    coarse = np.random.default_rng(number).integers(0, 256, (9, 12, 3), np.uint8)
    return cv2.resize(coarse, (200, 150), interpolation=cv2.INTER_CUBIC)


def write_photo(path: Path, image: np.ndarray, quality: int = 90) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, quality])


def write_class(folder: Path, number: int, images: int) -> None:
    """Writes photos of a class; every eighth one is also re-saved, and resized."""
    left = images
    photo = 1000 * number
    while left:
        photo += 1
        image = draw_photo(photo)
        write_photo(folder / f"{photo}.jpg", image)
        left -= 1
        if photo % 8 == 0 and left >= 2:
            write_photo(folder / f"saved_{photo}.jpg", image, quality=40)
            write_photo(folder / f"small_{photo}.jpg", cv2.resize(image, (100, 75)))
            left -= 2


def read_places(folder: Path) -> dict[str, tuple[str, str]]:
    """Key -> split and class of every record."""
    dataset = reader.open(folder)
    places = {}
    for split in dataset.split_names:
        table = package.contents(folder, split).to_table(columns=["key", "label"])
        for row in table.to_pylist():
            places[row["key"]] = (split, dataset.class_names[row["label"]])
    return places


def check_shares(places: Mapping[str, tuple[str, str]], allowed: float) -> None:
    """Checks that each class is in each split, and near its share there."""
    counts = collections.Counter(places.values())
    classes = collections.Counter(label for _, label in places.values())
    for label, images in classes.items():
        for split, share in SHARES.items():
            assert counts[split, label] > 0
            assert abs(counts[split, label] - images * share) <= allowed, (label, split, counts)


def splits_of(places: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    return {key: split for key, (split, _) in places.items()}


@pytest.mark.slow
def test_six_classes_with_copies_grow_and_shrink(beam_tfr: Command, tmp_path: Path) -> None:
    """With nothing but what docs/converting.md, duplicates.md and updating.md say."""
    photos = tmp_path / "photos"
    output = tmp_path / "d"
    for number, (label, images) in enumerate(SIZES.items()):
        write_class(photos / label, number, images)
    assert sum(SIZES.values()) == len([*photos.rglob("*.jpg")]) == 226
    run = beam_tfr(
        *("convert", "--input", photos, "--output", output, "--image_size", 64),
        *("--splits", "train=0.8,validation=0.1,test=0.1", "--stratify", "--duplicates", "group"),
    )
    assert run.code == 0, run.err
    before = read_places(output)
    assert len(before) == 226
    check_shares(before, allowed=3)  # the size of the largest cluster
    found = json.loads(beam_tfr("duplicates", output, "--json").out)
    expected = {
        frozenset({path.name, f"saved_{path.name}", f"small_{path.name}"})
        for path in photos.rglob("[0-9]*.jpg")
        if (path.parent / f"saved_{path.name}").exists()
    }
    clusters = {
        frozenset(image["key"].rpartition("/")[2] for image in cluster["images"])
        for cluster in found["clusters"]
    }
    assert clusters == expected
    assert found["counts"]["across_splits"] == 0

    for number in range(20):  # of all classes
        label = [*SIZES][number % 6]
        write_photo(photos / label / f"new_{number}.jpg", draw_photo(90_000 + number))
    copied = sorted(key for key in before if "_" not in key)[:10]
    for number, key in enumerate(copied):  # copies of photos that are there
        write_photo(
            photos / Path(key).parent / f"again_{number}.jpg", cv2.imread(str(photos / key))
        )
    run = beam_tfr("update", output, "--input", photos)
    assert run.code == 0, run.err
    assert run.out.splitlines()[-1] == "update:  30 added"  # and none moved
    grown = read_places(output)
    assert len(grown) == 256
    assert before.items() <= grown.items()
    for number, key in enumerate(copied):
        assert grown[f"{Path(key).parent}/again_{number}.jpg"] == grown[key]
    check_shares(grown, allowed=5)
    assert package.duplicates(output).counts["across_splits"] == 0

    gone = random.Random(1).sample(sorted(grown), 5)
    (tmp_path / "takedown.txt").write_text("\n".join(gone))
    assert beam_tfr("remove", output, "--keys", tmp_path / "takedown.txt").code == 0
    shrunk = read_places(output)
    assert shrunk == {key: place for key, place in grown.items() if key not in gone}
    assert beam_tfr("verify", output, "--absent", tmp_path / "takedown.txt").code == 0
    run = beam_tfr("update", output, "--input", photos)
    assert run.code == 0, run.err
    assert splits_of(read_places(output)) == splits_of(shrunk)


OPTIONS: dict[str, Any] = {
    "encoding": "bytes",
    "layout": "{label}/{group}_*",
    "splits": {"train": 0.6, "test": 0.4},
    "stratify": True,
}


def write_files(folder: Path, chance: random.Random, prefix: str = "") -> None:
    """Writes small files in groups of several classes, of which a part are copies of others."""
    for place in range(chance.randint(30, 70)):
        label = chance.choice("abc")
        group = chance.choice("ghijklmnopqrstuvw")
        content = chance.randrange(20) if chance.random() < 0.25 else prefix + str(100 + place)
        path = folder / label / f"{group}_{prefix}{place}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"content {content}".encode())


def check_sides(folder: Path) -> None:
    """Checks that groups, and copies, are in one split each."""
    sides = collections.defaultdict[str, set[str]](set)
    for key, (split, _) in read_places(folder).items():
        sides[key.split("/")[1].split("_")[0]].add(split)
    assert all(len(splits) == 1 for splits in sides.values())
    assert package.duplicates(folder).counts["across_splits"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "settled"),
    [({"splits": SHARES}, "group"), ({"folds": 5}, "group"), ({"splits": SHARES}, "drop")],
)
def test_new_images_make_up_for_copies_of_old_ones(
    tmp_path: Path, options: dict[str, Any], settled: str
) -> None:
    """Copies of photos in train or in a fold go there, and others to the other splits."""
    photos = tmp_path / "photos"
    for number in range(52):
        (photos / "shoes").mkdir(parents=True, exist_ok=True)
        (photos / "shoes" / f"{number}.jpg").write_bytes(f"photo {number}".encode())
    files = f"{photos}/**/*.jpg"
    output = tmp_path / "d"
    convert(output, input=files, encoding="bytes", stratify=True, duplicates=settled, **options)
    before = splits_of(read_places(output))
    fullest = "fold0" if "folds" in options else "train"
    copied = [key for key, split in sorted(before.items()) if split == fullest][:10]
    for number, key in enumerate(copied):
        (photos / "shoes" / f"copy_{number}.jpg").write_bytes((photos / key).read_bytes())
    for number in range(40):
        (photos / "shoes" / f"new_{number}.jpg").write_bytes(f"new {number}".encode())
    result = update(output, input=files)
    after = splits_of(read_places(output))
    assert before.items() <= after.items()
    assert result.run["moved"] == 0
    assert package.duplicates(output).counts["across_splits"] == 0
    sizes = collections.Counter(after.values())
    shares = SHARES if "splits" in options else dict.fromkeys(sizes, 0.2)
    assert all(abs(sizes[split] - len(after) * share) <= 1 for split, share in shares.items())
    assert not any(" differs from its shares" in note for note in result.notes)


def write_numbered(folder: Path, names: str, numbers: range) -> None:
    """Writes files called like `b_{number}`; those of one number are copies of each other."""
    for number in numbers:
        path = folder / "shoes" / f"{names.format(number=number, pair=number // 2)}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"photo {number}".encode())


def sides_of(folder: Path) -> dict[str, str]:
    """Number of each photo -> the split that it is in, whichever copy of it is stored."""
    splits = splits_of(read_places(folder))
    return {key.rpartition("_")[2]: split for key, split in splits.items()}


FILES: dict[str, Any] = {
    "encoding": "bytes",
    "splits": {"train": 0.5, "test": 0.5},
    "stratify": True,
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["{label}/*", "{label}/{group}_*"])
def test_a_photo_stays_in_its_split_whichever_of_its_copies_is_kept(
    tmp_path: Path, layout: str
) -> None:
    """When copies that are kept in place of others come, and when they are gone."""
    photos = tmp_path / "photos"
    output = tmp_path / "d"
    files = f"{photos}/**/*.jpg"
    write_numbered(photos, "b{pair}_{number}", range(24))
    convert(output, input=files, layout=layout, duplicates="drop", **FILES)
    before = sides_of(output)
    assert len(before) == 24
    write_numbered(photos, "a{number}_{number}", range(0, 24, 2))
    result = update(output, input=files)
    assert sides_of(output) == before
    assert result.changed["added"] == result.changed["removed"] == 12
    assert result.run["followed"] == 12
    assert "12 put into the split of a copy" in "\n".join(result.lines())
    again = update(output, input=files)
    assert again.digest == result.digest
    assert again.run["followed"] == 0
    for path in photos.rglob("a*.jpg"):
        path.unlink()
    result = update(output, input=files)
    assert sides_of(output) == before
    assert result.run["followed"] == 12


@pytest.mark.slow
@pytest.mark.parametrize("settled", ["report", "group"])
def test_dropped_copies_come_back_into_the_split_of_the_one_that_was_kept(
    tmp_path: Path, settled: str
) -> None:
    photos = tmp_path / "photos"
    output = tmp_path / "d"
    files = f"{photos}/**/*.jpg"
    for name in "abcd":
        write_numbered(photos, f"{name}_{{number}}", range(12))
    convert(output, input=files, layout="{label}/*", duplicates="drop", **FILES)
    before = splits_of(read_places(output))
    assert len(before) == 12
    result = update(output, input=files, duplicates=settled)
    after = splits_of(read_places(output))
    assert len(after) == 48
    assert before.items() <= after.items()
    assert package.duplicates(output).counts["across_splits"] == 0
    assert result.run["followed"] == 36
    assert result.run["moved"] == 0


@pytest.mark.slow
def test_a_random_set_with_groups_and_copies(tmp_path: Path) -> None:
    """New equals updated, copies and groups are on one side, and what is in no group stays."""
    folder = tmp_path / "random"
    files = f"{folder}/photos/**/*.jpg"
    chance = random.Random(1)
    few = {**OPTIONS, "layout": "{label}/*"}
    write_files(folder / "photos", chance)
    for name, options in (("groups", OPTIONS), ("copies", few)):
        convert(folder / name, input=files, **options)
        update(folder / name, duplicates="group")
        new = folder / f"new-{name}"
        convert(new, input=files, duplicates="group", **options)
        assert files_of(folder / name) == files_of(new)
    assert package.duplicates(folder / "copies").counts["across_splits"] == 0
    check_sides(folder / "groups")
    before = splits_of(read_places(folder / "copies"))
    write_files(folder / "photos", chance, prefix="new")
    gone = chance.sample(sorted(before), 3)
    for key in gone:
        (folder / "photos" / key).unlink()
    result = update(folder / "copies", input=files)
    after = splits_of(read_places(folder / "copies"))
    assert package.duplicates(folder / "copies").counts["across_splits"] == 0
    moved = [key for key in before.keys() & after.keys() if before[key] != after[key]]
    assert result.run["moved"] == len(moved)
    contents = {key: (folder / "photos" / key).read_bytes() for key in after}
    copied = collections.Counter(contents.values())
    assert all(copied[contents[key]] > 1 for key in moved)
    alone = sorted(key for key in after if copied[contents[key]] == 1)
    taken_down = chance.sample(alone, 2)
    package.remove(folder / "copies", keys=taken_down, progress=False)
    kept = {key: split for key, split in after.items() if key not in taken_down}
    assert splits_of(read_places(folder / "copies")) == kept
