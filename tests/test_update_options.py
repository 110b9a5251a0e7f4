"""`beam-tfr update` with other options, and wrong calls.

Options are those of the plan, which decode nothing, and of how to compare.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import beam_tfr
from beam_tfr import images, launch
from beam_tfr.dataset import history
from beam_tfr.options.run import UpdateOptions
from beam_tfr.schema.errors import DataError, RunError, UsageError
from tests.conftest import Run, as_nobody, few_at_once
from tests.converted import once
from tests.living_photos import files_of
from tests.update_rows import rows_of, write_table
from tests.updates import convert, count_decoding, fresh, paint, spoil, update, write_photos

FIXED: dict[str, Any] = {"image_size": 16, "allow_empty": ["cat", "dog", "owl", "zebra"]}
NONE = dict.fromkeys(("added", "removed", "changed", "relabelled"), 0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with 18 photos and one file that is no image, and the dataset `d` of them."""

    def make(folder: Path) -> None:
        write_photos(folder / "photos")
        (folder / "photos" / "cat" / "bad.jpg").write_text("no image")
        convert(folder / "d", input=f"{folder}/photos/**", max_rejects=1, **FIXED)

    made = once("update_options", make)
    return Path(shutil.copytree(made, tmp_path / "place"))


SHARDS: dict[str, Any] = {"seed": 3, "num_shards": 4, "compression": "none"}
PLANS: list[dict[str, Any]] = [
    {"splits": "train=0.5,test=0.5"},
    {"target_shard_bytes": 4000},
    {"examples_per_shard": 5},
    {"compression": "gzip:3"},
    SHARDS,
    {"layout": "*"},
    {"layout": "{label}/{number}.*", "max_rejects": 2},
    {"limit": 9},
    {"exclude": "**/dog/*"},
]
WITHOUT_INPUT = ("num_shards", "target_shard_bytes", "examples_per_shard", "compression", "seed")


@pytest.mark.parametrize("plan", few_at_once(PLANS, PLANS[0], SHARDS), ids=str)
def test_another_plan_decodes_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, plan: dict[str, Any]
) -> None:
    pattern = f"{place}/photos/**"
    expected = fresh(place / "fresh", input=pattern, **{"max_rejects": 1, **FIXED, **plan})
    decoded = count_decoding(monkeypatch)
    if plan.keys() <= {*WITHOUT_INPUT}:
        shutil.copytree(place / "d", place / "other")
        (place / "photos").rename(place / "gone")
        done = update(place / "other", max_rejects=1, **plan)
        assert (files_of(place / "other"), done.changed) == (expected, NONE)
        (place / "gone").rename(place / "photos")
    if "target_shard_bytes" not in plan:  # which needs a sample
        spoil(place / "photos")
    update(place / "d", input=pattern, **{"max_rejects": 1, **plan})
    assert files_of(place / "d") == expected
    assert [key for key in decoded if "bad" not in key] == []


@pytest.mark.slow
def test_classes_in_another_order_of_a_dataset_and_renamed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern, options = f"{place}/photos/**", {"max_rejects": 1, **FIXED}
    (place / "classes.txt").write_text("owl\ncat\ndog\n")
    given = {"classes": str(place / "classes.txt")}
    expected = fresh(place / "fresh", input=pattern, **options, **given)
    decoded = count_decoding(monkeypatch)
    done = update(place / "d", input=pattern, max_rejects=1, **given)
    assert files_of(place / "d") == expected
    assert (done.changed, done.class_names, decoded) == (
        {**NONE, "relabelled": 18},
        ("owl", "cat", "dog"),
        [],
    )
    update(place / "d", input=pattern, max_rejects=1, num_shards=2)  # the classes of the file stay
    assert files_of(place / "d") == fresh(
        place / "fresh", input=pattern, num_shards=2, **options, **given
    )


@pytest.mark.slow
def test_a_class_that_is_not_in_the_file_is_rejected_and_moves_no_record(place: Path) -> None:
    pattern, options = f"{place}/photos/**", {"max_rejects": 9, **FIXED}
    (place / "classes.txt").write_text("owl\ncat\n")
    given = {"classes": str(place / "classes.txt")}
    expected = fresh(place / "fresh", input=pattern, **options, **given)
    done = update(place / "d", input=pattern, max_rejects=9, **given)
    assert files_of(place / "d") == expected
    assert done.changed == {**NONE, "removed": 6, "relabelled": 12}


@pytest.mark.slow
def test_a_renamed_class_keeps_the_others_ids_with_a_dataset_as_classes(place: Path) -> None:
    pattern, options = f"{place}/photos/**", {"max_rejects": 1, **FIXED}
    shutil.copytree(place / "d", place / "old")
    (place / "photos" / "cat").rename(place / "photos" / "zebra")
    paint(place / "photos" / "ant" / "1.jpg", 77)
    given = {"classes": str(place / "old"), "allow_empty": [*FIXED["allow_empty"]]}
    expected = fresh(place / "fresh", input=pattern, **{**options, **given})
    done = update(place / "d", input=pattern, max_rejects=1, **given)
    assert files_of(place / "d") == expected
    assert done.class_names == ("cat", "dog", "owl", "ant", "zebra")
    paint(place / "photos" / "bee" / "1.jpg", 78)
    update(place / "d", input=pattern, max_rejects=1)
    assert files_of(place / "d") == fresh(
        place / "fresh", input=pattern, **{**options, "classes": str(place / "d")}
    )


def test_a_touched_file_is_read_but_not_decoded(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(place / "d")
    os.utime(place / "photos" / "cat" / "1.jpg", (1, 1))
    decoded = count_decoding(monkeypatch)
    done = update(place / "d", input=f"{place}/photos/**", max_rejects=1)
    assert (files_of(place / "d"), done.changed, decoded) == (before, {}, [])
    assert not (place / "d" / "history.jsonl").exists()


@pytest.mark.slow
def test_bytes_that_changed_unseen_are_trusted_by_auto_and_seen_by_checksum(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, pattern = files_of(place / "d"), f"{place}/photos/**"
    path = place / "photos" / "dog" / "2.jpg"
    status = path.stat()
    paint(path, 99)
    data = path.read_bytes()
    path.write_bytes((data + bytes(status.st_size))[: status.st_size])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert update(place / "d", input=pattern, max_rejects=2).changed == {}
    assert files_of(place / "d") == before
    expected = fresh(place / "fresh", input=pattern, max_rejects=2, **FIXED)
    decoded = count_decoding(monkeypatch)
    done = update(place / "d", input=pattern, max_rejects=2, compare="checksum")
    assert files_of(place / "d") == expected
    assert [key for key in decoded if "bad" not in key] == ["dog/2.jpg"]
    assert done.changed["changed"] + done.changed["removed"] == 1
    assert update(place / "d", input=pattern, max_rejects=2, compare="checksum").changed == {}


def test_a_reject_that_was_mended_is_read_and_nothing_else(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = f"{place}/photos/**"
    paint(place / "photos" / "cat" / "bad.jpg", 50)
    expected = fresh(place / "fresh", input=pattern, **FIXED)
    decoded = count_decoding(monkeypatch)
    done = update(place / "d", input=pattern)
    assert files_of(place / "d") == expected
    assert (done.changed, decoded) == ({**NONE, "added": 1}, ["cat/bad.jpg"])


def test_rejects_are_retried_with_a_higher_limit(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = f"{place}/photos/**"
    options = {**FIXED, "max_rejects": 20}
    fresh(place / "limited", input=pattern, **options, max_pixels=600)
    expected = fresh(place / "fresh", input=pattern, **options, max_pixels=1000)
    decoded = count_decoding(monkeypatch)
    done = update(place / "limited", input=pattern, max_rejects=20, max_pixels=1000)
    assert files_of(place / "limited") == expected
    assert 0 < done.changed["added"] < 18
    assert len(decoded) == done.changed["added"] + 1


@pytest.mark.parametrize(
    ("given", "said"),
    [({"image_size": 20}, "image_size"), ({"max_pixels": 600, "max_rejects": 20}, "max_pixels")],
)
def test_options_of_images_convert_everything_again(
    place: Path, capsys: pytest.CaptureFixture[str], given: dict[str, Any], said: str
) -> None:
    pattern, options = f"{place}/photos/**", {"max_rejects": 1, **FIXED, **given}
    expected = fresh(place / "fresh", input=pattern, **options)
    done = beam_tfr.update(place / "d", input=pattern, **{"max_rejects": 1, **given})
    assert files_of(place / "d") == expected
    # all photos are smaller with one option, and the large ones are rejected with the other
    removed = 18 - done.counts["written"]
    changed = 18 if "image_size" in given else 0
    assert done.changed == {**NONE, "removed": removed, "changed": changed}
    assert f"`{said}=` differs: all images are converted again" in capsys.readouterr().err


def change_sidecar(place: Path, how: str) -> None:
    folder = place / "d" / ".sources"
    first, *others = sorted(folder.iterdir())
    if how == "folder":
        shutil.rmtree(folder)
    elif how == "missing":
        first.unlink()
    elif how == "damaged":
        first.write_bytes(first.read_bytes()[:-80])
    elif how == "other":
        first.write_bytes(others[0].read_bytes())


@pytest.mark.slow
def test_without_a_sidecar_its_images_are_converted_again(place: Path) -> None:
    pattern, options = f"{place}/photos/**", {**FIXED, "max_rejects": 1}
    convert(place / "d", input=pattern, num_shards=3, overwrite=True, **options)
    expected = fresh(place / "fresh", input=pattern, num_shards=2, **options)
    (place / "d").rename(place / "whole")
    for how in ("folder", "missing", "damaged", "other"):
        shutil.rmtree(place / "d", ignore_errors=True)
        shutil.copytree(place / "whole", place / "d")
        change_sidecar(place, how)
        with pytest.raises((UsageError, DataError), match="input"):
            update(place / "d", num_shards=2)
        update(place / "d", input=pattern, num_shards=2, max_rejects=1)
        assert files_of(place / "d") == expected, how
        assert update(place / "d", input=pattern, max_rejects=1).changed == {}, how


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tfrecord*"))


@pytest.mark.slow
def test_a_damaged_record_is_converted_again_if_the_input_is_given(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = f"{place}/photos/**"
    (shard,) = shards(place / "d")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    monkeypatch.chdir(place / "photos")  # where keys are paths
    with pytest.raises((DataError, RunError), match="its record is damaged; update with `input="):
        update(place / "d", num_shards=2, max_rejects=1)
    expected = fresh(place / "fresh", input=pattern, num_shards=2, max_rejects=1, **FIXED)
    decoded = count_decoding(monkeypatch)
    update(place / "d", input=pattern, num_shards=2, max_rejects=1)
    assert files_of(place / "d") == expected
    assert len(decoded) == 1


def test_a_damaged_shard_that_would_stay_is_noticed(place: Path) -> None:
    before = files_of(place / "d")
    (shard,) = shards(place / "d")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    update(place / "d", input=f"{place}/photos/**", max_rejects=1)
    assert files_of(place / "d") == before


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_contents_that_are_missing_or_damaged(place: Path, how: str) -> None:
    (table,) = (place / "d" / "contents").glob("*.parquet")
    if how == "missing":
        table.unlink()
    else:
        table.write_bytes(table.read_bytes()[:100] + bytes(100) + table.read_bytes()[200:])
    with pytest.raises(DataError, match="repair"):
        update(place / "d", num_shards=2, max_rejects=1)


def photo_kinds(folder: Path) -> None:
    write_photos(folder, 2)
    for i, kind in enumerate(("PNG", "WEBP", "GIF", "BMP", "TIFF")):
        paint(folder / "cat" / f"x{i}.{kind.lower()}", 40 + i, kind)
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    paint(folder / "dog" / "rotated.jpg", 60, exif=exif)
    gray = folder / "owl" / "gray.jpg"
    Image.open(folder / "owl" / "0.jpg").convert("L").save(gray)
    half = (folder / "owl" / "1.jpg").read_bytes()
    (folder / "owl" / "half.jpg").write_bytes(half[: len(half) - 60])


ENCODINGS: list[dict[str, Any]] = [
    {"encoding": "png", "color": "keep"},
    {"encoding": "webp", "damaged": "keep"},
    {"encoding": "raw", "color": "gray"},
    {"encoding": "jpeg", "resize": "fit", "limit": 10},
    {"encoding": "keep", "resize": "none", "ignore_orientation": True},
    {"encoding": "bytes"},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", ENCODINGS, ids=str)
def test_other_encodings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    photos, pattern = tmp_path / "photos", f"{tmp_path}/photos/**"
    photo_kinds(photos)
    if options["encoding"] not in ("keep", "bytes"):
        options = {"image_size": 16, **options}
    options = {**options, "max_rejects": 9, "allow_empty": FIXED["allow_empty"]}
    convert(tmp_path / "d", input=pattern, **options)
    (photos / "cat" / "0.jpg").rename(photos / "dog" / "moved.jpg")
    paint(photos / "dog" / "0.jpg", 80)
    expected = fresh(tmp_path / "fresh", input=pattern, num_shards=3, **options)
    decoded = count_decoding(monkeypatch)
    given = {"max_rejects": 9, "allow_empty": FIXED["allow_empty"]}
    update(tmp_path / "d", input=pattern, num_shards=3, **given)
    assert files_of(tmp_path / "d") == expected
    # which takes others now
    assert {*decoded} <= {"dog/moved.jpg", "dog/0.jpg"} or options.get("limit")
    expected = fresh(tmp_path / "fresh", input=pattern, num_shards=2, **options)
    update(tmp_path / "d", num_shards=2)
    assert files_of(tmp_path / "d") == expected


@pytest.mark.slow
def test_arrays(tmp_path: Path) -> None:
    import numpy as np

    for i in range(6):
        path = tmp_path / "arrays" / "ab"[i % 2] / f"{i}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.arange(i + 2))
    pattern = f"{tmp_path}/arrays/**/*.npy"
    convert(tmp_path / "d", input=pattern, encoding="array")
    (tmp_path / "arrays" / "a" / "0.npy").rename(tmp_path / "arrays" / "b" / "0.npy")
    np.save(tmp_path / "arrays" / "b" / "1.npy", np.ones(9))
    expected = fresh(tmp_path / "fresh", input=pattern, encoding="array", num_shards=2)
    for compare in ("checksum", "auto"):
        done = update(tmp_path / "d", input=pattern, compare=compare, num_shards=2)
        assert files_of(tmp_path / "d") == expected
        assert done.changed == (
            {**NONE, "added": 1, "removed": 1, "changed": 1} if compare == "checksum" else {}
        )
    update(tmp_path / "d", num_shards=1)
    assert files_of(tmp_path / "d") == fresh(
        tmp_path / "fresh", input=pattern, encoding="array", num_shards=1
    )


@pytest.mark.slow
def test_the_sample_for_statistics_of_kept_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more than 64 images in a shard, and another sample after each update."""
    pattern = f"{tmp_path}/photos/**"
    write_photos(tmp_path / "photos", 50)
    options: dict[str, Any] = {"encoding": "keep", "resize": "none"}
    monkeypatch.setattr("beam_tfr.transforms.values.SPLIT_SAMPLE", 64)
    convert(tmp_path / "d", input=pattern, **options)
    for number in range(2):
        for i in range(9):
            paint(tmp_path / "photos" / "cat" / f"{number}-{i}.jpg", 7 * i + number)
        (tmp_path / "photos" / "dog" / f"{number}.jpg").unlink()
        update(tmp_path / "d", input=pattern)
        assert files_of(tmp_path / "d") == fresh(tmp_path / "fresh", input=pattern, **options)
    update(tmp_path / "d", num_shards=2)
    assert files_of(tmp_path / "d") == fresh(
        tmp_path / "fresh", input=pattern, num_shards=2, **options
    )


@pytest.mark.slow
def test_kept_images_that_are_relabelled_are_counted_as_such(tmp_path: Path) -> None:
    pattern, options = f"{tmp_path}/photos/**", {"encoding": "keep", "resize": "none"}
    write_photos(tmp_path / "photos")
    convert(tmp_path / "d", input=pattern, **options)
    (tmp_path / "classes.txt").write_text("cat\nowl\ndog\n")
    done = update(tmp_path / "d", input=pattern, classes=str(tmp_path / "classes.txt"))
    assert done.changed == {**NONE, "relabelled": 12}


@pytest.mark.slow
def test_other_codecs_ask_for_a_choice(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, given = f"{place}/photos/**", {"max_rejects": 1}
    paint(place / "photos" / "cat" / "new.jpg", 70)
    expected = fresh(place / "fresh", input=pattern, **given, **FIXED)
    versions = images.codec_versions()
    name = sorted(versions)[0]
    monkeypatch.setattr(images, "codec_versions", lambda: versions | {name: "99"})
    before = files_of(place / "d")
    with pytest.raises(
        UsageError, match=re.escape(f"{name} {versions[name]}, now 99. `codecs=keep`")
    ):
        update(place / "d", input=pattern, **given)
    assert files_of(place / "d") == before
    shutil.copytree(place / "d", place / "kept")
    decoded = count_decoding(monkeypatch)
    done = update(place / "kept", input=pattern, codecs="keep", **given)
    assert done.manifest.options["kept_codecs"] == sorted(
        f"{of} {version}" for of, version in versions.items()
    )
    assert decoded == ["cat/new.jpg"]
    assert beam_tfr.verify(place / "kept", progress=False).ok
    with pytest.raises(
        UsageError, match="some records of the dataset were made with different codec"
    ):
        update(place / "kept", input=pattern, **given)
    with pytest.raises(
        UsageError, match="some records of the dataset were made with different codec"
    ):
        update(place / "kept", num_shards=2, **given)
    again = update(place / "kept", num_shards=2, codecs="keep", **given)
    assert again.manifest.options["kept_codecs"] == done.manifest.options["kept_codecs"]
    with pytest.raises(UsageError, match="input="):
        update(place / "kept", codecs="convert", **given)
    for folder, more in (("d", {}), ("kept", {"num_shards": 1})):
        decoded.clear()
        update(place / folder, input=pattern, codecs="convert", **more, **given)
        assert len(decoded) == 20
        if not more:
            assert files_of(place / folder) == expected


@pytest.mark.parametrize("codecs", ["keep", "convert"])
def test_a_choice_of_codecs_hides_no_other_error(
    place: Path, monkeypatch: pytest.MonkeyPatch, codecs: str
) -> None:
    def fail() -> dict[str, str]:
        raise UsageError("the codecs cannot be asked")

    monkeypatch.setattr(images, "codec_versions", fail)
    with pytest.raises(UsageError, match="the codecs cannot be asked"):
        update(place / "d", input=f"{place}/photos/**", codecs=codecs, max_rejects=1)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"output": "x"}, "`output=x`"),
    ({"name": "x"}, "`name=x`"),
    ({"overwrite": True}, "`overwrite="),
    ({"no_wait": True}, "no_wait"),
    ({"sharts": 2}, "sharts"),
    ({"compare": "size"}, "compare.*auto, checksum, names"),
    ({"compare": "checksum"}, "compare"),
    ({"codecs": "old"}, "codecs.*keep, convert"),
    ({"image_size": 20}, "image_size=20.*input="),
    ({"splits": "train=0.5,test=0.5"}, "splits.*input="),
    ({"classes": "classes.txt"}, "classes=classes.txt.*input="),
    ({"exclude": "**/a"}, "exclude.*input="),
    ({"limit": 3}, "limit=3.*input="),
    ({"input": "nowhere/**"}, "nowhere"),
    ({"num_shards": 0}, "num_shards"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=str)
def test_wrong_calls(
    place: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(place)
    before = files_of(place / "d")
    with pytest.raises(UsageError, match=message):
        update(place / "d", **given)
    assert files_of(place / "d") == before


def test_history_and_changes(place: Path) -> None:
    pattern, lines = f"{place}/photos/**", []
    digest = json.loads((place / "d" / "manifest.json").read_text())["dataset_digest"]
    paint(place / "photos" / "cat" / "bad.jpg", 50)
    paint(place / "photos" / "cat" / "new.jpg", 51)
    paint(place / "photos" / "dog" / "1.jpg", 52)
    (place / "photos" / "owl" / "2.jpg").unlink()
    done = update(place / "d", input=pattern)
    assert done.changed == {"added": 2, "removed": 1, "changed": 1, "relabelled": 0}
    lines.append(
        {"command": "update", "before": digest, "after": done.digest, "records": 19, "rejects": 0}
    )
    again = update(place / "d", num_shards=3)
    assert again.changed == NONE
    lines.append(
        {
            "command": "update",
            "before": done.digest,
            "after": again.digest,
            "records": 19,
            "rejects": 0,
        }
    )
    found = [json.loads(line) for line in (place / "d" / "history.jsonl").read_text().splitlines()]
    for line, expected, changed in zip(found, lines, [done.changed, again.changed], strict=True):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", line.pop("time"))
        assert line == {**expected, **changed, "tool_version": beam_tfr.__version__}


def test_a_damaged_history_stays_as_it_is_and_gets_a_line(place: Path) -> None:
    path = place / "d" / "history.jsonl"
    path.write_bytes(b'{"command": "update"}\nno JSON\n[1]\n\xff')
    done = update(place / "d", num_shards=2, max_rejects=1)
    assert done.changed == NONE
    assert path.read_bytes().startswith(b'{"command": "update"}\nno JSON\n[1]\n\xff\n{"time"')


def test_a_history_that_is_a_link_starts_anew(place: Path) -> None:
    """What it leads to would become a part of the dataset."""
    path = place / "d" / "history.jsonl"
    (place / "mine").write_text("mine\n")
    path.symlink_to(place / "mine")
    update(place / "d", num_shards=2, max_rejects=1)
    assert not path.is_symlink()
    assert path.read_bytes().startswith(b'{"time"')
    assert (place / "mine").read_text() == "mine\n"


def test_a_history_from_elsewhere_is_shown_as_far_as_it_is_one(tmp_path: Path) -> None:
    sound = {"records": 5, "time": "2026-01-02T03:04:05", "command": "update", "added": 1}
    lines = ["[" * 200_000, '{"records": ' + "9" * 5000 + "}"]
    for wrong in ({"added": "x"}, {"time": 7}, {"added": [1]}, {"records": 1.5}, {"command": None}):
        lines.append(json.dumps(sound | wrong))
    lines.append(json.dumps(sound))
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join(lines))
    assert [*history.describe_updates(str(tmp_path))] == [
        "2026-01-02 update: 1 added; 5 records",
    ]
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # which takes no room on the disk
    assert not [*history.describe_updates(str(tmp_path))]


def test_the_command_keeps_the_datasets_options(
    tmp_path: Path, beam_tfr: Callable[..., Run]
) -> None:
    """Also its switches, which are false in the command's arguments unless they are given."""
    pattern, options = (
        f"{tmp_path}/photos/**",
        {"encoding": "keep", "resize": "none", "ignore_orientation": True},
    )
    write_photos(tmp_path / "photos", 2)
    (tmp_path / "photos" / "cat" / "bad.jpg").write_text("no image")
    convert(tmp_path / "d", input=pattern, max_rejects=1, **options)
    expected = fresh(tmp_path / "fresh", input=pattern, max_rejects=1, num_shards=2, **options)
    # what was rejected then may be now
    done = beam_tfr("update", tmp_path / "d", "--num_shards", 2)
    assert (done.code, files_of(tmp_path / "d")) == (0, expected), done.err
    assert "update:  no image changed, only other parts of the dataset" in done.out
    done = beam_tfr("update", tmp_path / "d", "--input", pattern, "--max_rejects", 1, "--json")
    assert (done.code, files_of(tmp_path / "d")) == (0, expected), done.err


@pytest.mark.parametrize(
    "command", [("update", "--num_shards", 2), ("remove", "--where", "class=cat")]
)
def test_a_folder_that_may_only_be_read(
    public_path: Path, place: Path, beam_tfr: Callable[..., Run], command: tuple[object, ...]
) -> None:
    folder = Path(shutil.copytree(place / "d", public_path / "d"))
    before = files_of(folder)
    with as_nobody():
        done = beam_tfr(command[0], folder, *command[1:])
    assert done.code in (1, 2)
    assert "Permission denied" in done.err
    assert "Traceback" not in done.err
    assert files_of(folder) == before


@pytest.mark.slow
def test_a_file_that_was_unreadable_is_read_again_when_it_can_be(
    place: Path, public_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size and time are the same then."""
    photos = Path(shutil.copytree(place / "photos", public_path / "photos"))
    pattern, path, output = f"{photos}/**", photos / "dog" / "3.jpg", public_path / "out" / "d"
    output.parent.mkdir()
    output.parent.chmod(0o777)
    path.chmod(0)
    with as_nobody():
        done = convert(output, input=pattern, accept_unreadable=True, max_rejects=2, **FIXED)
        assert done.counts["rejected"] == {"not-an-image": 1, "unreadable": 1}
    path.chmod(0o644)
    with as_nobody():
        done = update(output, input=pattern, max_rejects=2)
        assert done.counts["rejected"] == {"not-an-image": 1}
        assert done.changed == {**NONE, "added": 1}
    assert files_of(output) == fresh(place / "fresh", input=pattern, max_rejects=2, **FIXED)


@pytest.mark.slow
def test_a_dataset_of_rejects_alone_can_grow(tmp_path: Path) -> None:
    """Its shards have no records."""
    photos, options = (
        tmp_path / "photos",
        {"image_size": 16, "max_rejects": 1.0, "allow_empty": ["cat", "train"]},
    )
    (photos / "cat").mkdir(parents=True)
    (photos / "cat" / "bad.jpg").write_text("no image")
    assert convert(tmp_path / "d", input=f"{photos}/**", **options).counts["written"] == 0
    paint(photos / "cat" / "good.jpg", 40)
    done = update(
        tmp_path / "d", input=f"{photos}/**", max_rejects=1.0, allow_empty=options["allow_empty"]
    )
    assert done.changed == {**NONE, "added": 1}
    assert files_of(tmp_path / "d") == fresh(tmp_path / "fresh", input=f"{photos}/**", **options)


def test_an_update_without_an_input_says_that_it_looked_at_none(
    photos: Path, tmp_path: Path
) -> None:
    output = tmp_path / "d"
    beam_tfr.convert(input=photos, output=output, layout="{split}/{label}/*")
    lines = list[str]()
    launch.update(str(output), {}, UpdateOptions(), say=lines.append)
    assert [line for line in lines if "`input=`" in line]


@pytest.mark.parametrize("changes", [{}, {"image_size": 8}, {"duplicates": "drop"}], ids=str)
def test_an_input_of_new_images_alone_removes_nothing(
    place: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    new = tmp_path / "new"
    for number in range(4):
        paint(new / "cat" / f"new{number}.jpg", 90 + number)
    shutil.copy(place / "photos" / "cat" / "0.jpg", new / "cat")
    before = files_of(place / "d")
    for max_removed in ({}, {"max_removed": 16}, {"max_removed": 0.9}):
        with pytest.raises(DataError, match=r"would remove 17 of the 18 images.*the whole input"):
            update(place / "d", input=f"{new}/**", **changes, **max_removed)
        assert files_of(place / "d") == before
    both = [f"{place}/photos/**", f"{place}/new/**"]
    shutil.copytree(new, place / "new")
    with pytest.raises(DataError, match=r"remove 18 of the 18 images.*No image has the same key"):
        update(place / "d", input=both, max_rejects=1, **changes)  # keys begin with photos/
    done = update(place / "d", input=f"{new}/**", max_removed=17, **changes)
    assert done.counts["written"] == 5


@pytest.mark.parametrize("changes", [{"splits": "train=0.9,test=0.1"}, {"folds": 3}], ids=str)
def test_new_images_alone_that_leave_a_split_empty_are_too_few(
    place: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    paint(tmp_path / "new" / "cat" / "new.jpg", 90)
    new = {"input": f"{tmp_path}/new/**", **changes}
    with pytest.raises(DataError, match=r"at least 17 of the 18 records.*the whole input"):
        update(place / "d", **new)
    with pytest.raises(UsageError, match="none of the 1 images falls into"):
        update(place / "d", **new, max_removed=1.0)


@pytest.mark.parametrize("limit", [9, 3])
def test_a_limit_may_remove_images(place: Path, limit: int) -> None:
    done = update(place / "d", input=f"{place}/photos/**", max_rejects=1, limit=limit)
    assert done.counts["matched"] == limit


def test_a_limit_of_removals_needs_an_input(place: Path) -> None:
    with pytest.raises(UsageError, match=r"`max_removed=1\.0`.*no effect"):
        update(place / "d", max_removed=1.0)


def test_rows_that_a_table_lacks_count_as_removed(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", rows_of())
    convert(tmp_path / "d", table=table, encoding="row", label_column="class")
    fewer = write_table(tmp_path / "t.csv", rows_of()[:9])
    with pytest.raises(DataError, match=r"would remove .* rows in .*`table=` lacks"):
        update(tmp_path / "d", table=fewer)
    assert update(tmp_path / "d", table=fewer, max_removed=1.0).counts["written"] == 9
