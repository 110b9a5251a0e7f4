"""Classes that get other names and keep their ids."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfr
from beam_tfr import reader
from beam_tfr.dataset.unused_names import describe_unused_allowances, describe_unused_renames
from beam_tfr.schema.renames import compose_renames, find_renamed, parse_renames
from tests.box_fixtures import some_images, write_boxes
from tests.updates import convert, count_decoding, files_of, fresh, paint, update, write_photos

NAMES = st.sampled_from("abcdef")
RENAMES = st.dictionaries(NAMES, NAMES, max_size=4)


@given(RENAMES, RENAMES, st.sets(NAMES))
def test_renames_after_renames_are_renames(
    before: dict[str, str], then: dict[str, str], names: set[str]
) -> None:
    both = parse_renames(compose_renames(before, then))
    for name in names - ({*before.values()} & {*then.values()} - {*before}):
        shown = before.get(name, name)
        assert both.get(name, name) == then.get(shown, shown)


@given(RENAMES, RENAMES)
def test_classes_of_a_dataset_are_found_under_their_new_names(
    before: dict[str, str], then: dict[str, str]
) -> None:
    if len({*before.values()}) < len(before):
        return  # classes were joined
    originals = [name for name in "abcdef" if name in before or name not in before.values()]
    names = {before.get(name, name) for name in originals}
    then = {old: new for old, new in then.items() if old in names}
    both = parse_renames(compose_renames(before, then))
    renamed = find_renamed(before, both, names)
    assert renamed == {n: then[n] for n in sorted(names) if then.get(n, n) != n}


def test_a_renamed_class_keeps_its_id_and_nothing_is_decoded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, output = tmp_path / "photos", tmp_path / "d"
    write_photos(photos)
    convert(output, input=photos, image_size=8)
    decoded = count_decoding(monkeypatch)
    result = update(output, rename="cat=zebra")
    assert not decoded
    assert result.class_names == ("zebra", "dog", "owl")
    assert (result.changed["renamed"], result.changed["relabelled"]) == (6, 0)
    assert (result.renamed, result.new_ids) == ({"cat": "zebra"}, "")
    assert "cat -> zebra" in "\n".join(result.lines())
    assert beam_tfr.verify(output, progress=False).ok
    assert files_of(output) == fresh(
        tmp_path / "f", input=photos, image_size=8, rename=["cat=zebra"]
    )
    again = update(output, rename=["cat=zebra"])
    assert (again.changed.get("renamed", 0), again.renamed) == (0, {})

    with pytest.raises(
        beam_tfr.UsageError, match="has no class cat; its classes are: zebra, dog, owl"
    ):
        update(output, rename="cat=dog")  # which it is no more

    paint(photos / "cat" / "new.jpg", 99)  # the folder has its old name
    result = update(output, input=photos, rename=["zebra=ape", "dog=zebra"])
    assert result.class_names == ("ape", "zebra", "owl")
    assert (result.changed["renamed"], result.changed["added"]) == (12, 1)
    assert reader.open(output).options["rename"] == ["cat=ape", "dog=zebra"]
    for name in ("removed", "relabelled", "changed"):
        assert not result.changed[name]
    (photos / "cat").rename(photos / "ape")
    result = update(output, input=photos)
    assert result.class_names == ("ape", "zebra", "owl")


def test_a_dataset_whose_folder_was_renamed(tmp_path: pathlib.Path) -> None:
    photos, output = tmp_path / "photos", tmp_path / "d"
    write_photos(photos)
    convert(output, input=photos, image_size=8)
    (photos / "cat").rename(photos / "tiger")
    result = update(output, input=photos, rename="cat=tiger")
    assert result.class_names == ("tiger", "dog", "owl")
    assert not result.new_ids


def test_objects_are_renamed_too(tmp_path: pathlib.Path) -> None:
    output = write_boxes(tmp_path / "d", some_images())
    before = reader.open(output).class_names
    records = [*beam_tfr.Records(output, split="train", output="dict")]
    result = update(output, rename=f"{before[0]}=new name")
    assert result.class_names == ("new name", *before[1:])
    assert beam_tfr.verify(output, progress=False).ok
    now = [*beam_tfr.Records(output, split="train", output="dict")]
    for old, new in zip(records, now, strict=True):
        assert [*old["image/object/class/label"]] == [*new["image/object/class/label"]]


def test_rows_are_renamed_by_table(tmp_path: pathlib.Path) -> None:
    table = tmp_path / "t.jsonl"
    rows = [{"class": number % 3, "x": number} for number in range(12)]
    table.write_text("\n".join(map(json.dumps, rows)))
    options = {"table": table, "label_column": "class", "rename": ["2=a", "0=z"]}
    result = convert(tmp_path / "d", **options)
    assert result.class_names == ("z", "1", "a")
    preview = beam_tfr.plan(progress=False, **options)
    assert preview.plan.labels == ["z", "1", "a"]


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ("cat", "OLD=NEW"),
        ("cat=", "OLD=NEW"),
        ("cat= x", "cannot be a class"),
        (["cat=a", "cat=b"], "two names"),
        ("cow=b", "has no class cow; its classes are: cat, dog, owl"),
        ("cat=dog", "has a class dog"),
        ("cow=dog", "has no class cow"),
        (["cat=puma", "puma=cat"], "has no class puma"),
        (["cat=dog", "dog=dingo", "dingo=x"], "has no class dingo"),
    ],
)
def test_wrong_names(tmp_path: pathlib.Path, rename: str | list[str], message: str) -> None:
    photos, output = tmp_path / "photos", tmp_path / "d"
    write_photos(photos, 1)
    convert(output, input=photos, image_size=8)
    before = files_of(output)
    with pytest.raises(beam_tfr.UsageError, match=message):
        update(output, rename=rename)
    assert files_of(output) == before


def test_renames_of_no_class_to_one_that_is_there_are_told(tmp_path: pathlib.Path) -> None:
    photos = tmp_path / "photos"
    write_photos(photos, 1)
    given: dict[str, Any] = {
        "input": photos,
        "output": tmp_path / "d",
        "rename": ["dgo=dog", "cat=kitty"],
        "image_size": 8,
    }
    for texts in (beam_tfr.plan(**given).warnings, beam_tfr.convert(**given).lines()):
        (told,) = (text for text in texts if "changes nothing" in text)
        assert "dgo=dog" in told


def test_names_that_are_no_class_are_told() -> None:
    renames = {"kat": "kitty", "dog": "hound"}
    (told,) = describe_unused_renames(renames, {"dog"}, ["cat", "hound"])
    assert "kat=kitty" in told
    assert "'cat'" in told
    (told,) = describe_unused_allowances(["test", "dgo", "dog"], ["test"], ["dog"])
    assert "allow_empty=dgo" in told
    assert "'dog'" in told
