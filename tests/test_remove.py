"""`beam-tfr remove`: images are taken down and stay out."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.inputs import key_lists, patterns
from beam_tfr.inputs.key_lists import KeyList, read_keys
from beam_tfr.launch import updating
from beam_tfr.output import copy_details, removed
from beam_tfr.schema.errors import InterruptedRunError, UsageError
from beam_tfr.schema.items import Reject
from tests.conftest import Run
from tests.converted import once
from tests.living_photos import files_of
from tests.update_rows import OPTIONS, rows_of, write_table
from tests.updates import convert, fresh, paint, update, write_photos

Command = Callable[..., Run]
FIXED: dict[str, Any] = {"image_size": 16, "max_rejects": 3, "allow_empty": ["cat", "dog", "owl"]}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with photos, one of them twice and one no image, and the dataset `d` of them."""

    def make(folder: Path) -> None:
        write_photos(folder / "photos")
        shutil.copy(folder / "photos" / "cat" / "1.jpg", folder / "photos" / "owl" / "same.jpg")
        (folder / "photos" / "cat" / "bad.jpg").write_text("no image")
        convert(folder / "d", input=f"{folder}/photos/**", num_shards=2, **FIXED)

    return Path(shutil.copytree(once("remove", make), tmp_path / "place"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_lines(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(
        b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    )
    return path


def without(place: Path, *keys: str, **more: Any) -> dict[str, bytes]:
    """What a fresh conversion without these images writes, except removed.txt.

    It reads from the same places.
    """
    for key in keys:
        (place / "photos" / key).unlink()
    return fresh(place / "fresh", input=f"{place}/photos/**", num_shards=2, **FIXED, **more)


def split_removed(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    files = files_of(folder)
    return files, files.pop("removed.txt").decode().splitlines()


def test_by_key_with_those_of_the_same_bytes_and_rejects(place: Path, beam_tfr: Command) -> None:
    data = (place / "photos" / "cat" / "1.jpg").read_bytes()
    listed = write_lines(place / "keys.txt", "cat/1.jpg", "cat/bad.jpg", "cat/nowhere.jpg")
    done = beam_tfr("remove", place / "d", "--keys", listed, "--allow_missing")
    assert done.code == 0, done.err
    assert "removed: 2 records; removed.txt keeps them out" in done.out
    assert "does not have 1 of the specified images: cat/nowhere.jpg" in done.err
    keys = ("cat/1.jpg", "owl/same.jpg", "cat/bad.jpg")
    files, lines = split_removed(place / "d")
    assert files == without(place, *keys)
    assert lines == sorted(
        [
            *(f"key {sha256(key.encode())}" for key in (*keys, "cat/nowhere.jpg")),
            f"source {sha256(data)}",
        ]
    )
    (line,) = (place / "d" / "history.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert {
        name: told[name]
        for name in ("command", "removed", "added", "changed", "relabelled", "rejects")
    } == {
        "command": "remove",
        "removed": 2,
        "added": 0,
        "changed": 0,
        "relabelled": 0,
        "rejects": 0,
    }
    assert not any(key in line for key in keys)
    assert beam_tfr("verify", place / "d").code == 0


@pytest.mark.slow
def test_what_was_removed_stays_out(place: Path, beam_tfr: Command) -> None:
    data, pattern = (place / "photos" / "cat" / "1.jpg").read_bytes(), f"{place}/photos/**"
    assert (
        beam_tfr(
            "remove", place / "d", "--sha256", write_lines(place / "s.txt", sha256(data).upper())
        ).code
        == 0
    )
    before = files_of(place / "d")
    assert update(place / "d", input=pattern, max_rejects=3).changed == {}
    assert files_of(place / "d") == before
    (place / "photos" / "dog" / "again.jpg").write_bytes(data)
    done = update(place / "d", input=pattern, max_rejects=3)
    assert done.changed == dict.fromkeys(("added", "removed", "changed", "relabelled"), 0)
    assert done.counts["rejected"] == {"not-an-image": 1, "taken-down": 1}
    assert [reject.key for reject in done.rejects if reject.reason == "taken-down"] == [
        "dog/again.jpg"
    ]
    updated = files_of(place / "d")
    convert(place / "d", input=pattern, num_shards=2, overwrite=True, **FIXED)
    assert files_of(place / "d") == updated
    assert (
        beam_tfr(
            "remove", place / "d", "--keys", write_lines(place / "k.txt", "dog/again.jpg")
        ).code
        == 0
    )
    files, lines = split_removed(place / "d")
    assert len(lines) == 4
    assert "taken-down" not in files["rejects.jsonl"].decode()
    assert update(place / "d", input=pattern, max_rejects=3).changed == {}


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("class=owl", ["cat/1.jpg", *(f"owl/{i}.jpg" for i in range(6)), "owl/same.jpg"]),
        pytest.param("source_height=21", None, marks=pytest.mark.slow),
        pytest.param("key=dog/3.jpg", ["dog/3.jpg"], marks=pytest.mark.slow),
    ],
)
def test_by_a_column(place: Path, beam_tfr: Command, where: str, keys: list[str] | None) -> None:
    import PIL.Image

    if keys is None:
        photos = [path for path in (place / "photos").rglob("*.jpg") if path.name != "bad.jpg"]
        keys = [
            str(path.relative_to(place / "photos"))
            for path in photos
            if PIL.Image.open(path).height == 21
        ]
        assert keys
    done = beam_tfr("remove", place / "d", "--where", where, "--json")
    assert done.json["removed"] == len(keys), done.err
    assert split_removed(place / "d")[0] == without(place, *keys)


def test_ids_that_move_because_a_class_is_gone_are_told(place: Path, beam_tfr: Command) -> None:
    run = beam_tfr("remove", place / "d", "--where", "class=dog")
    assert run.code == 0
    assert "owl 2 -> 1" in run.out
    assert "models trained on it use the old ids" in run.out


def test_by_several_columns_of_which_all_must_fit(place: Path, beam_tfr: Command) -> None:
    done = beam_tfr(
        "remove", place / "d", "--where", "class=owl", "--where", "key=owl/2.jpg", "--json"
    )
    assert done.json["removed"] == 1, done.err
    assert split_removed(place / "d")[0] == without(place, "owl/2.jpg")


@pytest.mark.slow
def test_a_list_may_have_other_line_ends_and_names_of_any_bytes(
    place: Path, beam_tfr: Command
) -> None:
    odd = place / "photos" / "dog" / b"caf\xe9 \xc2\x85x.jpg".decode("utf-8", "surrogateescape")
    paint(odd, 66)
    update(place / "d", input=f"{place}/photos/**", max_rejects=3)
    listed = write_lines(place / "keys.txt", b"dog/caf\xe9 \xc2\x85x.jpg\r", b"dog/2.jpg\r", b"")
    done = beam_tfr("remove", place / "d", "--keys", listed)
    assert "removed: 2 records" in done.out, done.err
    assert "does not have" not in done.err
    assert split_removed(place / "d")[0] == without(place, f"dog/{odd.name}", "dog/2.jpg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--keys", "missing.txt"), "--keys missing.txt: cannot be read"),
        (("--keys", "empty.txt"), "--keys empty.txt: is empty; give a key per line"),
        (("--sha256", "short.txt"), "--sha256 short.txt: 'abc' is not a SHA-256"),
        (("--where", "class"), "--where class: must be NAME=VALUE"),
        (("--where", "size=3"), "there is no column 'size'"),
        (("--where", "class=cow"), "no image in"),
        (("--keys", "none.txt"), "does not have 1 of the specified images: cat/nowhere.jpg"),
        (("--keys", "none.txt", "--where", "class=cat"), "not allowed with"),
        ((), "one of the arguments --keys --sha256 --where is required"),
        (("--keys", "none.txt", "--overwrite"), "--overwrite"),
    ],
)
def test_wrong_calls(
    place: Path,
    beam_tfr: Command,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(place)
    write_lines(place / "none.txt", "cat/nowhere.jpg")
    write_lines(place / "empty.txt", "")
    write_lines(place / "short.txt", "ab" * 32, "abc")
    before = files_of(place / "d")
    done = beam_tfr("remove", place / "d", *arguments)
    assert done.code == (1 if message.startswith(("no image", "does not")) else 2)
    assert message in done.err
    assert "Traceback" not in done.err
    assert files_of(place / "d") == before


@pytest.mark.parametrize("command", ["remove", "verify"])
def test_a_key_with_a_line_break_is_named_in_json_lines(
    place: Path, beam_tfr: Command, command: str
) -> None:
    paint(place / "photos" / "dog" / "a\nb.jpg", 66)
    update(place / "d", input=f"{place}/photos/**")
    lines = write_lines(place / "keys.txt", "dog/a", "b.jpg")
    flag = "--keys" if command == "remove" else "--absent"
    refused = beam_tfr(command, place / "d", flag, lines)
    assert refused.code == 2
    assert "the key 'dog/a\\nb.jpg' in the dataset contains a line break" in refused.err
    assert "JSON Lines" in refused.err
    listed = write_lines(place / "keys.jsonl", json.dumps({"key": "dog/a\nb.jpg"}))
    found = beam_tfr("verify", place / "d", "--absent", listed)
    assert (found.code, "dog/a\\nb.jpg" in found.err) == (1, True)
    if command == "remove":
        assert "removed: 1 record;" in beam_tfr("remove", place / "d", "--keys", listed).out
        assert beam_tfr("verify", place / "d", "--absent", listed).code == 0


@pytest.mark.parametrize("name", ["n" * 240, os.fsdecode(b"\xff.jpg")])
def test_keys_that_contents_lack_are_found_without_the_notes_for_updates(
    place: Path, beam_tfr: Command, name: str
) -> None:
    key = "/".join(["dog", *[name.removesuffix(".jpg")] * (5 if len(name) > 9 else 1)]) + ".jpg"
    (place / "photos" / key).parent.mkdir(parents=True, exist_ok=True)
    paint(place / "photos" / key, 66)
    update(place / "d", input=f"{place}/photos/**")
    shutil.rmtree(place / "d/.sources")
    listed = write_lines(place / "keys.jsonl", json.dumps({"key": key}))
    found = beam_tfr("verify", place / "d", "--absent", listed)
    assert found.code == 1
    assert "absent:  1 trace " in found.out


@pytest.mark.parametrize("line", [b"[" * 200_000, b"{}", b'{"key": 1}', b"x" * (3 << 20)])
def test_damaged_rejects_prove_nothing(place: Path, beam_tfr: Command, line: bytes) -> None:
    (place / "d/rejects.jsonl").write_bytes(line)
    listed = write_lines(place / "keys.txt", "dog/never.jpg")
    found = beam_tfr("verify", place / "d", "--absent", listed)
    assert found.code == 1
    assert "rejects.jsonl: damaged" in found.err


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"a\r\n\nb\n", KeyList(["a", "b"], are_lines=True)),
        (b'"a"\n"b\\nc"\n', KeyList(["a", "b\nc"])),
        (b'{"key": "a", "reason": "x"}\n\n"b"', KeyList(["a", "b"])),
        (b'{"key": "\\udcff"}', KeyList(["\udcff"])),
        (b'"a"\nb', KeyList(['"a"', "b"], are_lines=True)),
        (b'{"key": 1}', KeyList(['{"key": 1}'], are_lines=True)),
        (b'"\\ud800"', KeyList(['"\\ud800"'], are_lines=True)),
        (b"\xff", KeyList(["\udcff"], are_lines=True)),
    ],
)
@pytest.mark.parametrize("way", ["file", "pipe", "-"])
def test_lists_of_keys(
    data: bytes, keys: KeyList, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "list")
    if way == "pipe":
        os.mkfifo(path)
        threading.Thread(target=Path(path).write_bytes, args=[data]).start()
    elif way == "-":
        path = "-"
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    else:
        Path(path).write_bytes(data)
    assert read_keys(path, option="keys", needs="a key per line") == keys


def test_a_pipe_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (key_lists, patterns):
        monkeypatch.setattr(module, "MAX_LIST_BYTES", 100)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n" * 60)))
    with pytest.raises(UsageError, match=r"`keys=-`: has more than"):
        read_keys("-", option="keys", needs="a key per line")


def test_what_is_not_there_yet_is_kept_out(place: Path, beam_tfr: Command) -> None:
    before, pattern = files_of(place / "d"), f"{place}/photos/**"
    paint(place / "later.jpg", 71)
    listed = write_lines(
        place / "sums.txt", f"{sha256((place / 'later.jpg').read_bytes())}  photos/later.jpg"
    )
    done = beam_tfr("remove", place / "d", "--sha256", listed, "--allow_missing")
    assert done.code == 0, done.err
    assert "removed: 0 records; removed.txt keeps them out" in done.out
    assert "does not have 1 of the specified images" in done.err
    assert beam_tfr("remove", place / "d", "--sha256", listed).code == 0  # is kept out already
    assert (
        place / "d/removed.txt"
    ).read_text() == f"source {sha256((place / 'later.jpg').read_bytes())}\n"
    assert split_removed(place / "d")[0] == before
    names = write_lines(place / "keys.txt", "dog/never.jpg")
    assert beam_tfr("remove", place / "d", "--keys", names, "--allow_missing").code == 0
    shutil.copy(place / "later.jpg", place / "photos/dog/renamed.jpg")
    shutil.copy(place / "photos/dog/2.jpg", place / "photos/dog/never.jpg")
    planned = beam_tfr("plan", "--input", pattern, "--output", place / "d", "--overwrite", "--json")
    done = update(place / "d", input=pattern, max_rejects=1)  # of which those taken down are none
    assert [reject.key for reject in done.rejects if reject.reason == "taken-down"] == [
        "dog/renamed.jpg"
    ]
    assert done.run["left_out"] == planned.json["left_out"] == 1
    assert planned.json["matched"] == done.counts["matched"]
    assert "1 image kept out by earlier removals" in repr(done)
    assert beam_tfr("verify", place / "d", "--absent", listed).code == 0
    (place / "photos/dog/renamed.jpg").unlink()
    again = update(place / "d", input=pattern, max_rejects=3)
    # which never counted dog/never.jpg
    assert again.counts["matched"] == done.counts["matched"] - 1
    assert split_removed(place / "d")[0] == before


def test_a_list_of_sha256sum_finds_what_is_there(place: Path, beam_tfr: Command) -> None:
    listed = write_lines(
        place / "sums.txt", f"{sha256((place / 'photos/dog/1.jpg').read_bytes())}  dog/1.jpg"
    )
    done = beam_tfr("verify", place / "d", "--absent", listed)
    assert done.code == 1
    assert "dog/1.jpg" in done.err
    assert beam_tfr("remove", place / "d", "--sha256", listed).code == 0
    done = beam_tfr("verify", place / "d", "--absent", listed)
    assert done.code == 0
    assert "never removed" not in done.out


def test_keys_that_were_never_removed_prove_nothing(place: Path, beam_tfr: Command) -> None:
    listed = write_lines(place / "keys.txt", "dog/typo.jpg")
    done = beam_tfr("verify", place / "d", "--absent", listed)
    assert done.code == 1
    assert "such as 'dog/typo.jpg'" in done.err
    assert "OK" not in done.out
    assert (
        json.loads(beam_tfr("verify", place / "d", "--absent", listed, "--json").out)["ok"] is False
    )
    sums = write_lines(place / "sums.txt", sha256(b"of no file"))  # proved by bytes
    done = beam_tfr("verify", place / "d", "--absent", sums)
    assert done.code == 0
    assert "1 of these were never removed here" in done.out


@pytest.mark.parametrize("command", ["remove", "update"])
def test_a_folder_that_is_no_dataset(place: Path, beam_tfr: Command, command: str) -> None:
    more = ["--where", "class=cat"] if command == "remove" else ["--num_shards", 2]
    for folder in ("photos", "nowhere"):
        done = beam_tfr(command, place / folder, *more)
        assert done.code == 1
        assert str(place / folder) in done.err
        assert "Traceback" not in done.err


def test_a_damaged_list_of_what_was_removed(place: Path, beam_tfr: Command) -> None:
    (place / "d" / "removed.txt").write_text("key abc\n")
    for command in (
        ("update", place / "d", "--num_shards", 1),
        ("remove", place / "d", "--where", "class=cat"),
    ):
        done = beam_tfr(*command)
        assert done.code == 1
        assert "removed.txt: line 1 is damaged; restore the file" in done.err


@pytest.mark.slow
def test_from_a_dataset_of_a_table(tmp_path: Path, beam_tfr: Command) -> None:
    for i in range(20):
        paint(tmp_path / f"{i}.jpg", i)
    convert(tmp_path / "d", table=write_table(tmp_path / "t.csv", rows_of()), **OPTIONS)
    assert beam_tfr("remove", tmp_path / "d", "--where", "age=7").code == 0
    assert beam_tfr("remove", tmp_path / "d", "--where", "note=note 4").code == 0
    assert beam_tfr("remove", tmp_path / "d", "--where", "score=2.5").code == 0
    rows = [row for row in rows_of() if row["age"] not in ("7", "4", "10")]
    files = split_removed(tmp_path / "d")[0]
    assert files == fresh(
        tmp_path / "fresh", table=write_table(tmp_path / "t.csv", rows), **OPTIONS
    )
    write_table(tmp_path / "t.csv", rows_of())
    update(tmp_path / "d", table=str(tmp_path / "t.csv"))
    assert split_removed(tmp_path / "d")[0] == files


def test_sources_of_removed_images_are_no_problems(place: Path, beam_tfr: Command) -> None:
    twin = (place / "photos" / "cat" / "1.jpg").read_bytes()
    keys = write_lines(place / "k.txt", "dog/1.jpg", "new.jpg")
    assert beam_tfr("remove", place / "d", "--keys", keys, "--allow_missing").code == 0
    hashes = write_lines(place / "s.txt", sha256(twin))
    assert beam_tfr("remove", place / "d", "--sha256", hashes).code == 0
    (place / "photos" / "new.jpg").write_bytes(b"kept out by its key")
    (place / "photos" / "dog" / "again.jpg").write_bytes(twin)
    sources = f"{place}/photos/**"
    assert beam_tfr("verify", place / "d", "--sources", sources).code == 0
    (place / "photos" / "dog" / "other.jpg").write_bytes(b"other")
    done = beam_tfr("verify", place / "d", "--sources", sources)
    assert done.code == 1
    assert "dog/other.jpg" in done.out + done.err
    assert "again.jpg" not in done.out + done.err


def test_rows_are_not_removed_but_left_out_of_the_table(tmp_path: Path, beam_tfr: Command) -> None:
    convert(
        tmp_path / "d",
        table=write_table(tmp_path / "t.csv", rows_of()),
        encoding="row",
        label_column="class",
    )
    done = beam_tfr("remove", tmp_path / "d", "--where", "class=cat")
    assert done.code == 2
    assert "remove the rows from the table, and convert it again with --overwrite" in done.err


def test_rows_that_are_left_out_are_absent(tmp_path: Path, beam_tfr: Command) -> None:
    options = {"encoding": "row", "label_column": "class"}
    convert(tmp_path / "d", table=write_table(tmp_path / "t.csv", rows_of()), **options)
    listed = write_lines(tmp_path / "keys.txt", "t#20", "t#21")
    done = beam_tfr("verify", tmp_path / "d", "--absent", listed)
    assert done.code == 1
    assert done.err.count("not removed: ") == 1  # in the contents; rows have no sidecar
    assert "t#20" in done.err
    assert "t#21" not in done.err
    fewer = write_table(tmp_path / "t.csv", rows_of()[:19])
    convert(tmp_path / "d", table=fewer, overwrite=True, **options)
    assert beam_tfr("verify", tmp_path / "d", "--absent", listed).code == 0


def test_what_is_found(place: Path) -> None:
    dataset = read_manifest(str(place / "d"))
    data = (place / "photos" / "cat" / "1.jpg").read_bytes()
    images = removed.find_images(
        dataset, removed.ImageSelection(keys=["owl/same.jpg", "x"]), lambda _: None
    )
    assert (images.number, images.missing, images.hashes.sources) == (2, ["x"], {sha256(data)})
    images = removed.find_images(
        dataset, removed.ImageSelection(sources=[sha256(data), "0" * 64]), lambda _: None
    )
    assert (images.number, images.missing) == (2, ["0" * 64])


def test_a_dataset_whose_sidecars_are_gone(finished: Path, beam_tfr: Command) -> None:
    folder = finished
    shutil.rmtree(folder / ".sources")
    before = files_of(folder)
    for command in (
        ("update", folder, "--num_shards", 2),
        ("remove", folder, "--where", "class=cat"),
    ):
        done = beam_tfr(*command)
        assert done.code in (1, 2)
        assert "--input" in done.err
        assert "Traceback" not in done.err
        assert files_of(folder) == before


@pytest.mark.parametrize("key", ["a/b.jpg", "a, which has another class: b there, c here.jpg"])
@pytest.mark.parametrize(
    "classes", [("", ""), ("hat", "shoes"), ("x, which has another class: y", "")]
)
def test_the_image_that_a_copy_is_of_is_found_whatever_its_name(
    key: str, classes: tuple[str, str]
) -> None:
    detail = copy_details.describe_copy(key, *classes)
    assert key in copy_details.list_kept(Reject("k", "Read", "duplicate", detail))
    assert copy_details.list_kept(Reject("k", "Read", "bad-value", detail)) == []


def test_errors_name_the_folder_as_it_was_given(
    finished: Path, beam_tfr: Command, tmp_path: Path
) -> None:
    within = beam_tfr("update", finished, "--input", finished)
    told = f"beam-tfr update: --input {finished}/: is also the folder of the dataset; "
    assert (within.code, within.err.startswith(told)) == (2, True), within.err
    around = beam_tfr("update", finished, "--input", f"{tmp_path}/**/*")
    told = f"--input {tmp_path}/**/*: also matches files of the dataset, {finished}: choose another"
    assert (around.code, told in around.err) == (2, True), around.err
    shutil.rmtree(finished / ".beam_tfr", ignore_errors=True)
    (finished / ".beam_tfr").symlink_to(tmp_path)
    for command in (["remove", finished, "--where", "label=hat"], ["update", finished]):
        run = beam_tfr(*command)
        told = f"beam-tfr {command[0]}: {finished}: contains a link, .beam_tfr, and files in its "
        assert (run.code, told in run.err) == (2, True), run.err


def test_a_failed_run_says_that_the_images_are_listed(
    place: Path, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(place / "d")
    keys = write_lines(place / "keys.txt", "cat/1.jpg")
    with monkeypatch.context() as patch:
        patch.setattr(updating, "update", raise_interrupt)
        ended = beam_tfr("remove", place / "d", "--keys", keys)
    assert ended.code == 130
    assert ended.err.endswith(
        "beam-tfr remove: interrupted\nOnly removed.txt was written: it keeps these images out of "
        "updates. Run the same command again to take them down now\n"
    )
    files, _ = split_removed(place / "d")
    assert files == before
    done = beam_tfr("remove", place / "d", "--keys", keys)
    assert (done.code, "removed: 2 records" in done.out) == (0, True)


def raise_interrupt(*_: object, **__: object) -> None:
    raise InterruptedRunError("interrupted")
