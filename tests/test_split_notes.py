"""What is said of splits: images of the same bytes in several, and classes that one lacks."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfr as package
from beam_tfr.dataset.split_notes import (
    HASH_BYTES,
    SourceHashes,
    describe_classes,
    encode_label,
    find_contradiction,
    find_overlaps,
)
from beam_tfr.schema.naming import contents_name
from tests.conftest import Run
from tests.converted import SAMPLE

Command = Callable[..., Run]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 9), max_size=8)), max_size=6)
)
def test_overlaps_are_those_of_sets(parts: Sequence[tuple[str, list[int]]]) -> None:
    """0 stands for no source."""
    hashes = [
        SourceHashes(split, b"".join(number.to_bytes(HASH_BYTES) for number in numbers))
        for split, numbers in parts
    ]
    sources: dict[str, set[int]] = {split: set() for split, _ in parts}
    for split, numbers in parts:
        sources[split] |= {*numbers} - {0}
    shared = {}
    for pair in itertools.combinations(sorted(sources), 2):
        number = len(sources[pair[0]] & sources[pair[1]])
        if number:
            shared[pair] = number
    overlaps = find_overlaps(hashes)
    assert {overlap.splits: overlap.number for overlap in overlaps} == shared
    for overlap in overlaps:
        places = [parts[part][1][record] for part, record in overlap.first]
        assert [parts[part][0] for part, _ in overlap.first] == [*overlap.splits]
        assert places[0] == places[1] > 0


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 2)), max_size=8), max_size=4))
def test_contradictions_are_sources_of_several_classes(
    parts: Sequence[Sequence[tuple[int, int]]],
) -> None:
    """The source 0 stands for none, and the label -1 for no class."""
    hashes = []
    classes: dict[int, set[int]] = {}
    for pairs in parts:
        sources = b"".join(source.to_bytes(HASH_BYTES) for source, _ in pairs)
        labels = b"".join(encode_label([label]) for _, label in pairs)
        hashes.append(SourceHashes("train", sources, labels))
        for source, label in pairs:
            classes.setdefault(source, set()).update({label} - {-1})
    number = sum(len(labels) > 1 for source, labels in classes.items() if source)
    contradiction = find_contradiction(hashes)
    assert (contradiction.number if contradiction else 0) == number
    if contradiction:
        [one, other] = [parts[part][record] for part, record in contradiction.first]
        assert one[0] == other[0] > 0
        assert one[1] != other[1]
        assert -1 not in (one[1], other[1])


def test_images_of_two_classes_are_told(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    shutil.rmtree(photos / "test")
    given = ["--input", photos / "train", "--output", tmp_path / "d"]
    for number in (0, 1):
        shutil.copy(photos / f"train/hat/{number}.jpg", photos / f"train/shoes/{number}.jpg")
    plan = beam_tfr("plan", *given)
    run = beam_tfr("convert", *given)
    verified = beam_tfr("verify", tmp_path / "d")
    for out in (plan.out, run.out, verified.out):
        assert "2 images have the same bytes in different classes" in out
        assert "hat/" in out
    many = ["--table", photos / "t.csv", "--uri_column", "path", "--label_column", "label"]
    rows = "train/hat/0.jpg,a|b\ntrain/shoes/0.jpg,a\n"
    (photos / "t.csv").write_text(f"path,label\n{rows}")
    run = beam_tfr("convert", *many, "--label_separator", "|", "--output", tmp_path / "e")
    assert "different classes" not in run.out


@pytest.mark.parametrize(
    ("counts", "notes"),
    [
        ({"train": {"cat": 2, "hat": 3}, "test": {"cat": 2}}, ["class hat has no image in test"]),
        ({"train": {"cat": 2, "hat": 1}}, ["class hat has 1 image"]),
        (
            {"train": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, "none": {}},
            ["classes a, b, c, and 2 more have 1 image each"],
        ),
        (
            {"test": {}, "train": {"cat": 2, "hat": 3}},
            ["no image in test has a class"],
        ),
        ({"train": {"cat": 2}, "test": {"cat": 2}}, []),
        ({"train": {}, "test": {}}, []),
    ],
)
def test_classes_that_a_split_lacks(
    counts: Mapping[str, Mapping[str, int]], notes: list[str]
) -> None:
    splits = {name: SimpleNamespace(class_counts=of_split) for name, of_split in counts.items()}
    classes = sorted({name for of_split in counts.values() for name in of_split})
    assert [*describe_classes(splits, classes, "jpeg")] == notes
    with_unused = [*describe_classes(splits, [*classes, "unused"], "jpeg")]
    assert {*with_unused} - {*notes} == {"class unused has no image"}


@pytest.mark.parametrize(
    ("classes", "splits", "told"),
    [
        (["Cat", "cat", "dog"], ["train"], ["Cat and cat"]),
        (["cat", "cat (1)", "dog"], ["train"], ["cat and cat (1)"]),
        (["copy of dog", "dog - Copy", "photocopy"], ["train"], ["copy of dog and dog - Copy"]),
        (["t shirt", "t-shirt", "tshirt"], ["train"], ["t shirt and t-shirt and tshirt"]),
        (["cat", "c\u200bat", "dog"], ["train"], [r"cat and c\u200bat"]),
        (["\u202ecat", "Cat"], ["train"], [r"\u202ecat and Cat"]),
        (["cat", "cat\ufe0f"], ["train"], [r"'cat' and 'cat\ufe0f'"]),
        (["\u00e9", "e\u0301"], ["train"], [r"'\xe9' and 'e\u0301'"]),
        (["cat", "cat\u00a0"], ["train"], [r"cat and cat\xa0"]),
        (["1-0", "10", "a1", "a-1", "cats", "cat"], ["train"], []),
        (["cat", "dog"], ["Train", "train"], ["train and Train"]),
    ],
)
def test_names_that_may_mean_the_same(
    classes: list[str], splits: list[str], told: list[str]
) -> None:
    counts = {split: SimpleNamespace(class_counts=dict.fromkeys(classes, 2)) for split in splits}
    notes = [*describe_classes(counts, classes, "jpeg")]
    assert [note.rpartition(": ")[2] for note in notes] == told


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three photos in train, of which two are in test too, under other names."""
    hats = sorted((SAMPLE / "train" / "hat").iterdir())[:2]
    shoe = min((SAMPLE / "train" / "shoes").iterdir())
    folder = tmp_path / "photos"
    places = {"train/hat/0.jpg": hats[0], "train/hat/1.jpg": hats[1], "train/shoes/2.jpg": shoe}
    places |= {"test/hat/3.jpg": hats[0], "test/hat/4.jpg": hats[1]}
    for name, source in places.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)
    return folder


def test_all_commands_say_it(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    given = ["--input", photos, "--layout", "{split}/{label}/*", "--output", tmp_path / "d"]
    equal = "2 images have the same bytes in train and test, such as train/hat/"
    others = ["class shoes has no image in test", "class shoes has 1 image"]
    plan = beam_tfr("plan", *given)
    run = beam_tfr("convert", *given)
    again = beam_tfr("convert", *given, "--json")
    verified = beam_tfr("verify", tmp_path / "d")
    by_json = beam_tfr("verify", tmp_path / "d", "--json")
    for out in (plan.out, run.out, "\n".join(again.json["notes"]), verified.out):
        for note in (equal, *others):
            assert note in out
    assert (verified.code, [*by_json.json["notes"]]) == (0, again.json["notes"])
    report = package.verify(tmp_path / "d", progress=False)
    assert report.ok
    assert report.notes == tuple(again.json["notes"])


def test_long_keys_are_told_whole(beam_tfr: Command, tmp_path: Path) -> None:
    """Contents have none of more than 1,000 characters."""
    long = "/".join(["n" * 200] * 6)
    for split in ("train", "test"):
        (tmp_path / "photos" / split / long).mkdir(parents=True)
        shutil.copy(
            next((SAMPLE / "test/hat").iterdir()), tmp_path / "photos" / split / long / "0.jpg"
        )
    given = ["--input", tmp_path / "photos", "--layout", "{split}/**"]
    beam_tfr("convert", *given, "--output", tmp_path / "d", "--image_size", 32)
    verified = beam_tfr("verify", tmp_path / "d")
    assert f"train/{long}/0.jpg" in verified.out


def test_contents_that_cannot_be_read(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    given = ["--input", photos, "--layout", "{split}/{label}/*", "--output", tmp_path / "d"]
    assert beam_tfr("convert", *given).code == 0
    shard = next((tmp_path / "d").glob("d-test-*"))
    (tmp_path / "d" / contents_name(shard.name)).unlink()
    verified = beam_tfr("verify", tmp_path / "d")
    assert verified.code == 1
    assert "and record " in verified.out  # whose key the contents would say
    again = beam_tfr("convert", *given)
    assert "could not check whether several" in again.out or again.code
