"""Storage: files that appear whole or not at all, on disk and on gs://.

Errors are raised when they cannot.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import storage
from beam_tfr.inputs.read_ahead import ReadAhead
from beam_tfr.schema.dataset import SOURCES_FOLDER
from beam_tfr.schema.errors import RejectError, UsageError
from beam_tfr.storage import AlreadyExistsError, Entry
from beam_tfr.verification import verify
from tests.conftest import SAMPLE, Run, as_nobody, files_of

Command = Callable[..., Run]


# On a disk


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_the_error_of_a_full_disk_names_the_file() -> None:
    file = storage.disk.DiskPendingFile.__new__(storage.disk.DiskPendingFile)
    file._path, file._temporary = "/data/out/shard", "nowhere"
    file._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - closed by abort
    with pytest.raises(OSError, match=r"No space left on device: '/data/out/shard'"):
        file.write(b"x")
    file.abort()


def test_a_relative_path_in_a_folder_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(
        UsageError, match="`input=a/b`: the current folder was deleted; use an absolute path"
    ):
        storage.check_path("a/b", option="input")
    assert storage.check_path("/a/b", option="input") == "/a/b"


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("set/images/a.png", True),
        ("set/images/no/such/a.png", True),
        ("set/masks/no/a.png", True),  # beside the root
        ("set/no/a.png", True),
        ("set/empty/a.png", False),  # may be an unmounted disk, as may what follows
        ("other/no/a.png", False),
        ("set/images/b.png", False),  # is there
    ],
)
def test_a_file_in_no_folder_is_gone_in_or_beside_a_root(
    tmp_path: Path, path: str, gone: bool
) -> None:
    for name in ("set/images/b.png", "set/masks/b.png", "other/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "set/empty").mkdir()
    assert storage.is_gone(str(tmp_path / path), f"{tmp_path}/set/images/") == gone
    assert not storage.is_gone(f"{tmp_path}/no/images/a.png", f"{tmp_path}/no/images/")


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage.check_path("~/photos/**/*.jpg", option="input") == f"{tmp_path}/photos/**/*.jpg"
    assert storage.check_path("/a/~b") == "/a/~b"


def test_a_file_appears_on_commit_and_leaves_nothing_else(tmp_path: Path, scratch: Path) -> None:
    path = tmp_path / "file"
    with storage.create(str(path), scratch=str(scratch)) as file:
        file.write(b"one, ")
        file.write(memoryview(b"two"))
        assert not path.exists()
        assert len(list(scratch.iterdir())) == 1
        file.commit()
        assert path.read_bytes() == b"one, two"
    assert path.read_bytes() == b"one, two"
    assert list(scratch.iterdir()) == []


def test_without_commit_nothing_remains(tmp_path: Path, scratch: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with storage.create(str(path), scratch=str(scratch)) as file:
        file.write(b"x" * (1 << 20))
    with contextlib.suppress(RuntimeError), storage.create(str(path), scratch=str(scratch)) as file:
        file.write(b"x")
        raise RuntimeError
    pending = storage.create(str(path), scratch=str(scratch))
    pending.write(b"x")
    pending.abort()
    pending.abort()
    assert path.read_bytes() == b"before"
    assert list(scratch.iterdir()) == []


def test_a_garbage_collected_file_does_not_appear(tmp_path: Path, scratch: Path) -> None:
    pending = storage.create(str(tmp_path / "file"), scratch=str(scratch))
    pending.write(b"x" * (1 << 20))
    del pending
    gc.collect()
    assert not (tmp_path / "file").exists()


def test_commit_replaces_only_with_replace(tmp_path: Path, scratch: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    storage.write_bytes(str(path), b"after", scratch=str(scratch))
    assert path.read_bytes() == b"after"
    storage.write_bytes(str(path), b"after", scratch=str(scratch), replace=False)
    for other in (b"", b"After", b"after all"):
        with pytest.raises(AlreadyExistsError, match=str(path)):
            storage.write_bytes(str(path), other, scratch=str(scratch), replace=False)
    assert path.read_bytes() == b"after"
    storage.write_bytes(str(tmp_path / "new"), b"new", scratch=str(scratch), replace=False)
    assert (tmp_path / "new").read_bytes() == b"new"
    assert list(scratch.iterdir()) == []


def test_a_commit_that_fails_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "nowhere" / "file"):
        for replace in (True, False):
            with pytest.raises((OSError, AlreadyExistsError)):
                storage.write_bytes(str(path), b"x", scratch=str(scratch), replace=replace)
    assert list(scratch.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "scratch"]


def test_a_file_is_committed_once(tmp_path: Path, scratch: Path) -> None:
    with storage.create(str(tmp_path / "file"), scratch=str(scratch)) as file:
        file.commit()
        with pytest.raises(ValueError, match="closed file"):
            file.commit()


def test_of_many_writers_one_is_first(tmp_path: Path, scratch: Path) -> None:
    path, barrier, won = tmp_path / "file", threading.Barrier(8), []

    def write(number: int) -> None:
        barrier.wait()
        try:
            storage.write_bytes(str(path), b"%d" % number, scratch=str(scratch), replace=False)
            won.append(number)
        except AlreadyExistsError:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [path.read_bytes()]
    assert list(scratch.iterdir()) == []


KILLED = """
import sys, time
from beam_tfr import storage
with storage.create(sys.argv[1], scratch=sys.argv[2]) as file:
    file.write(b"x" * (4 << 20))
    print("written", flush=True)
    time.sleep(60)
    file.commit()
"""


def test_a_killed_writer_leaves_no_file(tmp_path: Path, scratch: Path) -> None:
    path = tmp_path / "file"
    command = [sys.executable, "-c", KILLED, str(path), str(scratch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert not path.exists()
    assert [file.name.startswith(".tmp-") for file in scratch.iterdir()] == [True]


def test_reading_and_finding(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert storage.read_bytes(str(path)) == b"0123456789"
    assert storage.read_bytes(str(path), max_bytes=10) == b"0123456789"
    assert storage.read_bytes(str(path), max_bytes=4) == b"01234"
    assert storage.find(str(path)) == Entry(str(path), 10, path.stat().st_mtime_ns)
    assert storage.find(str(tmp_path)) is None
    assert storage.find(str(tmp_path / "nowhere")) is None
    with storage.open_binary(str(path)) as file:
        assert file.read(3) == b"012"
        assert file.read() == b"3456789"


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "socket"))
    with pytest.raises(OSError, match="it is a folder"):
        storage.read_bytes(str(tmp_path))
    with pytest.raises(OSError, match="it is a pipe, not a file: write it to a file first"):
        storage.read_bytes(str(tmp_path / "pipe"))
    with pytest.raises(OSError, match="it is a socket or a device, not a file"):
        storage.read_bytes(str(tmp_path / "socket"))
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(str(tmp_path / "nowhere"))
    with pytest.raises(OSError, match="it is a device, not a file"):
        storage.read_bytes("/dev/zero", max_bytes=10)


def test_a_place_beyond_the_end_of_a_file_is_no_growth(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with storage.open_binary(str(path)) as file:
        file.seek(10)
        assert file.read(5) == b""
        file.seek(1)
        assert file.read() == b"bc"


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    line = b"a.jpg,cat\n"
    path.write_bytes(line * 50_000)
    with path.open("ab", buffering=0) as end:

        def read_without_end() -> None:
            with storage.open_binary(str(path)) as file:
                while file.readline():
                    end.write(line * 2)

        with pytest.raises(storage.ChangedError, match="it grew while it was read"):
            read_without_end()
    with storage.open_binary(str(path)) as file:
        assert len(file.read()) == path.stat().st_size


def test_deleting_a_missing_file_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    storage.delete(str(tmp_path / "a" / "b" / "file"))
    storage.delete(str(tmp_path / "a" / "b" / "file"))
    storage.delete_all(storage.walk(str(tmp_path / "a"), lambda _: True))
    storage.delete_all(storage.walk(str(tmp_path / "a"), lambda _: True))
    assert [*storage.walk(str(tmp_path), lambda _: True)] == []
    assert storage.list_folder(str(tmp_path / "a")) == []


def test_listing_a_folder(tmp_path: Path) -> None:
    for name in ("b", "a", ".c"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    assert storage.list_folder(str(tmp_path)) == [".c", "a", "b"]


def test_a_folder_without_permission(public_path: Path) -> None:
    (public_path / "out").mkdir()
    with as_nobody(), pytest.raises(PermissionError):
        storage.create(str(public_path / "out" / "file"), scratch=str(public_path / "out"))


# On gs://: the emulator, which checks no preconditions


def test_objects_appear_on_commit(gcs: str, tmp_path: Path) -> None:
    path = f"{gcs}/a/file"
    with storage.create(path, scratch="") as file:
        file.write(b"one, ")
        file.write(memoryview(b"two"))
        assert storage.find(path) is None
        file.commit()
    assert storage.read_bytes(path) == b"one, two"
    assert storage.read_bytes(path, max_bytes=3) == b"one,"
    assert storage.find(path).size_bytes == 8
    with storage.open_binary(path) as opened:
        assert opened.read() == b"one, two"


def test_without_commit_there_is_no_object(gcs: str) -> None:
    with storage.create(f"{gcs}/file", scratch="") as file:
        file.write(b"x" * (1 << 20))
    pending = storage.create(f"{gcs}/file", scratch="")
    pending.write(b"x" * (1 << 20))
    del pending
    gc.collect()
    with contextlib.suppress(RuntimeError), storage.create(f"{gcs}/file", scratch="") as file:
        file.write(b"x")
        raise RuntimeError
    assert storage.find(f"{gcs}/file") is None
    assert storage.list_folder(gcs) == []


def test_a_killed_writer_leaves_no_object(gcs: str) -> None:
    command = [sys.executable, "-c", KILLED, f"{gcs}/file", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert storage.list_folder(gcs) == []


def test_folders_of_objects(gcs: str) -> None:
    for name in ("b", "a", "sub/c", "sub/d é.jpg", "subway"):
        storage.write_bytes(f"{gcs}/{name}", name.encode(), scratch="")
    assert storage.list_folder(gcs) == ["a", "b", "subway"]
    assert (
        storage.list_folder(f"{gcs}/sub") == storage.list_folder(f"{gcs}/sub/") == ["c", "d é.jpg"]
    )
    assert storage.list_folder(f"{gcs}/none") == []
    listed = {entry.path: entry.size_bytes for entry in storage.walk(gcs, lambda _: True)}
    assert listed == {
        f"{gcs}/{name}": len(name.encode()) for name in ("a", "b", "sub/c", "sub/d é.jpg", "subway")
    }
    storage.delete_all(storage.walk(f"{gcs}/sub", lambda _: True))
    storage.delete(f"{gcs}/a")
    storage.delete(f"{gcs}/a")
    assert [entry.path for entry in storage.walk(gcs, lambda _: True)] == [
        f"{gcs}/b",
        f"{gcs}/subway",
    ]


def test_errors_of_missing_objects_and_buckets_hide_the_request(gcs: str) -> None:
    said = re.escape("no such bucket or object (HTTP 404)") + "(?!.*http://)"
    for path in (f"{gcs}/none", "gs://no-bucket/none"):
        with pytest.raises(FileNotFoundError, match=said):
            storage.read_bytes(path)
        assert storage.find(path) is None
    with pytest.raises(FileNotFoundError, match=said):
        list(storage.walk("gs://no-bucket/x", lambda _: True))
    with pytest.raises(FileNotFoundError, match=said):
        storage.write_bytes("gs://no-bucket/x", b"x", scratch="")
    assert storage.find("gs://photos") is storage.find("gs://photos/") is None


def test_reading_ahead_reads_objects_in_order(gcs: str) -> None:
    for i in range(0, 20, 2):
        storage.write_bytes(f"{gcs}/{i}", b"%d" % i, scratch="")
    storage.write_bytes(f"{gcs}/7", b"", scratch="")
    ahead = ReadAhead(images=6)
    found = list(ahead.read([Entry(f"{gcs}/{i}", 0, 0) for i in range(20)]))
    ahead.close()
    for i, content in enumerate(found):
        if i % 2 == 0:
            assert content == b"%d" % i
        else:
            assert isinstance(content, RejectError)
            assert content.reason == ("empty-file" if i == 7 else "not-found")


def test_threads_share_one_client(gcs: str) -> None:
    clients: list[object] = []
    threads = [
        threading.Thread(target=lambda: clients.append(storage.gcs_client.client()))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clients) == 16
    assert len(set(map(id, clients))) == 1


# Conversions from gs:// to gs://


@pytest.fixture
def some_photos(tmp_path: Path) -> Path:
    """23 files, of which 20 are photos of the sample in two splits.

    The others are one that is empty, one that is text, and one that fits no split.
    """
    folder = tmp_path / "photos"
    for split, each in (("train", 3), ("test", 1)):
        for label in ("dress", "hat", "pants", "shirt", "shoes"):
            (folder / split / label).mkdir(parents=True)
            for file in sorted((SAMPLE / "train" / label).iterdir())[:each]:
                (folder / split / label / file.name).write_bytes(file.read_bytes())
    (folder / "train" / "hat" / "empty.jpg").touch()
    (folder / "test" / "hat" / "text file é.jpg").write_text("no image")
    (folder / "loose.jpg").write_bytes(b"x")
    return folder


def upload(folder: Path, to: str) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.write_bytes(f"{to}/{path.relative_to(folder)}", path.read_bytes(), scratch="")


def objects_of(folder: str) -> dict[str, bytes]:
    entries = storage.walk(folder, lambda _: True)
    found = {entry.path[len(folder) + 1 :]: entry.path for entry in entries}
    return {
        name: storage.read_bytes(path)
        for name, path in found.items()
        if not name.startswith(SOURCES_FOLDER)
    }


@pytest.mark.slow
def test_a_dataset_on_gs_equals_that_on_disk(
    gcs: str, some_photos: Path, tmp_path: Path, beam_tfr: Command
) -> None:
    upload(some_photos, f"{gcs}/photos")
    options = [
        "--layout",
        "{split}/{label}/*",
        "--name",
        "d",
        "--max_rejects",
        "3",
        "--num_shards",
        "train=3,test=2",
    ]
    local = beam_tfr(
        "convert", "--input", f"{some_photos}/**/*.jpg", "--output", tmp_path / "out", *options
    )
    assert local.code == 0
    command = [
        "convert",
        "--input",
        f"{gcs}/photos/**/*.jpg",
        "--output",
        f"{gcs}/out",
        *options,
        "--json",
    ]
    run = beam_tfr(*command)
    assert run.code == 0
    assert (run.json["matched"], run.json["written"]) == (23, 20)
    assert run.json["rejected"] == {"empty-file": 1, "layout-mismatch": 1, "not-an-image": 1}
    found = objects_of(f"{gcs}/out")
    assert found == files_of(tmp_path / "out")
    keys = {json.loads(line)["key"] for line in found["rejects.jsonl"].splitlines()}
    assert keys == {"loose.jpg", "train/hat/empty.jpg", "test/hat/text file é.jpg"}

    report = verify(f"{gcs}/out")
    assert (report.ok, report.counts["records_read"]) == (True, 20)
    again = beam_tfr(*command)
    assert (again.code, again.json["complete_already"]) == (0, True)
    assert objects_of(f"{gcs}/out") == found

    name = "d-train-00001-of-00003.tfrecord.gz"
    storage.write_bytes(f"{gcs}/out/{name}", found[name][:-9] + b"?" + found[name][-8:], scratch="")
    damaged = beam_tfr("verify", f"{gcs}/out")
    assert damaged.code == 1
    assert name in damaged.err


def test_mistakes_on_gs(gcs: str, some_photos: Path, tmp_path: Path, beam_tfr: Command) -> None:
    upload(some_photos / "train", f"{gcs}/photos")
    photos = f"{gcs}/photos/*/*.jpg"
    missing = "no such bucket or object (HTTP 404)"
    for source, output, code, message in [
        (
            "gs://no-bucket/**/*.jpg",
            f"{gcs}/o",
            2,
            f"--input gs://no-bucket/**/*.jpg: cannot be listed: gs://no-bucket: {missing}",
        ),
        (f"{gcs}/none/**/*.jpg", f"{gcs}/o", 2, f"--input {gcs}/none/**/*.jpg: matches no file"),
        (
            f"{gcs}/none",
            f"{gcs}/o",
            2,
            f"--input {gcs}/none/: matches no file below it with an image extension",
        ),
        (
            photos,
            "gs://no-bucket/o",
            2,
            f"gs://no-bucket/o: cannot be written to: {missing}",
        ),
    ]:
        run = beam_tfr("convert", "--input", source, "--output", output)
        assert run.code == code
        assert message in run.err
        assert "Traceback" not in run.err
        assert "http://" not in run.err
        assert run.out == ""
    assert storage.list_folder(f"{gcs}/o") == storage.list_folder(f"{gcs}/o/.beam_tfr") == []
    for folder, message in (
        ("gs://no-bucket/o", missing),
        (f"{gcs}/photos", "the folder does not exist"),
        ("gs://", "gs://: has no bucket"),
    ):
        run = beam_tfr("verify", folder)
        assert run.code == (2 if folder == "gs://" else 1)
        assert message in run.err
        assert "Traceback" not in run.err


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EIO])
def test_broken_connections_are_transient(number: int) -> None:
    assert storage.may_pass(OSError(number, "x"))


@pytest.mark.parametrize("there", [None, b"same", b"other"])
def test_a_mount_without_links_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bytes | None
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "target"
    if there is not None:
        target.write_bytes(there)
    if there == b"other":
        with pytest.raises(storage.AlreadyExistsError):
            storage.write_bytes(str(target), b"same", scratch=str(tmp_path), replace=False)
    else:
        storage.write_bytes(str(target), b"same", scratch=str(tmp_path), replace=False)
    assert target.read_bytes() == (there or b"same")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_the_checksum_of_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * 600_000)
    checksum = hashlib.sha256(b"x" * 600_000).hexdigest()
    for most, expected in ((600_000, checksum), (599_999, ""), (0, ""), (1 << 30, checksum)):
        assert storage.sha256_of_small(str(path), most) == expected
    path.write_bytes(b"")
    assert storage.sha256_of_small(str(path), 0) == hashlib.sha256().hexdigest()
