"""Sidecars: only sound ones of the same plan are used.

They are used only with the file that they describe.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from beam_tfr import storage
from beam_tfr.dataset.base import PlannedShard
from beam_tfr.output import known, sidecars
from beam_tfr.planning import packing
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.items import ImageRef, Reject
from beam_tfr.schema.plan import ShardInfo
from tests.claims import begin, built_file, finish_shard, make_plan, shard_of, sidecar


@pytest.mark.parametrize("damage", ["no checksum", "appended", "gone"])
def test_a_damaged_sidecar_is_ignored(tmp_path: Path, damage: str) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    path = sidecar(tmp_path)
    data = path.read_bytes()
    damaged = {
        "no checksum": b"".join(data.splitlines(keepends=True)[:-1]),
        "appended": data + b"x\n",
    }
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(damaged[damage])
    assert sidecars.read_finished(str(tmp_path), info.shard) is None
    with pytest.raises(
        RunError, match=f"{info.shard.name}.json is missing, or another program or run changed it"
    ):
        list(sidecars.read_rejects(str(tmp_path), info.shard.name))


@pytest.mark.slow
def test_every_truncation_and_every_flipped_byte_of_a_sidecar_shows(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    path = sidecar(tmp_path)
    data = path.read_bytes()
    assert sidecars.read_sidecar(str(tmp_path), info.shard.name) is not None
    for place in range(len(data) - 1):  # the last line end may go
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        for damaged in (data[:place], bytes(flipped)):
            path.write_bytes(damaged)
            assert sidecars.read_sidecar(str(tmp_path), info.shard.name) is None, damaged


@pytest.mark.parametrize("name", ["../mine", "/etc/mine", "a/b", "..", ".", "a\0b"])
@pytest.mark.parametrize("field", ["built", "contents", "file"])
def test_a_sidecar_names_no_files_elsewhere(field: str, name: str, tmp_path: Path) -> None:
    """As in a folder that was copied from a stranger."""
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    assert info.contents
    elsewhere: Any = info.contents._replace(built=name) if field == "contents" else name
    sidecar(tmp_path).unlink()
    sidecars.write_sidecar(str(tmp_path), dataclasses.replace(info, **{field: elsewhere}), [])
    assert sidecars.read_sidecar(str(tmp_path), info.shard.name) is None


BOMB = base64.b64encode(zlib.compress(bytes(1 << 26)))


def ref(**fields: Any) -> bytes:
    known = {"key": "a.jpg", "size_bytes": 10, "generation": 0, "split": "train", **fields}
    return ImageRef(**known).encode()


def packed(*refs: bytes) -> bytes:
    return base64.b64encode(packing.pack_values(refs))


REF = ref()
UNPACKED = base64.b64encode(zlib.compress(struct.pack("<2I", 1, 1000) + b"a"))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (1, BOMB),
        (1, b"no base64"),
        (1, base64.b64encode(b"no zlib")),
        (1, UNPACKED),
        (1, base64.b64encode(packing.pack_values([b"no reference"]))),
        (1, packed(REF, b"no reference")),
        (1, packed(REF, b"12345678")),
        (1, packed(b"12345678", REF)),
        (1, packed(REF, b"")),
        (1, packed(REF, ref(size_bytes=-1))),
        (1, packed(REF, ref(size_bytes=1 << 64))),
        (1, packed(REF, ref(generation=-1))),
        (1, packed(REF, ref(generation=10**4000))),
        (1, packed(REF, ref(crc32c=1 << 32))),
        (1, packed(REF, REF.replace(b"\x000\0", b"\0x\0"))),
        (2, BOMB),
        (2, base64.b64encode(packing.pack_values([b"x"]))),
        (3, b"no JSON"),
        (3, b'{"other": 1}'),
        (3, b"[" * 50_000),
        (3, b'{"key": 5, "stage": "", "reason": "", "detail": ""}'),
        (3, b'{"key": null, "stage": "", "reason": "", "detail": ""}'),
        (3, b'{"key": "\\ud800", "stage": "", "reason": "", "detail": ""}'),
        (3, b'{"key": "a", "stage": [], "reason": "", "detail": ""}'),
        (3, b'{"key": "a", "stage": "", "reason": {}, "detail": ""}'),
        (3, b'{"key": "a", "stage": "", "reason": "", "detail": 1}'),
    ],
)
def test_a_sidecar_whose_values_cannot_be_used_is_none(
    line: int, text: bytes, tmp_path: Path
) -> None:
    """Although its checksum fits: its folder was copied from a stranger."""
    info = finish_shard(tmp_path, begin(tmp_path))
    path = sidecar(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = text + b"\n"
    body = b"".join(lines[:-1])
    path.write_bytes(body + sha256_hex(body).encode() + b"\n")
    assert sidecars.read_sidecar(str(tmp_path), info.shard.name) is None


def test_no_more_of_a_sidecar_is_read_than_its_shard_can_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".sources/train-00000-of-00001.json"
    path.parent.mkdir()
    path.touch()
    os.truncate(path, 1 << 30)
    read = []

    def read_bytes(path: str, **how: Any) -> bytes:
        data = read_original(path, **how)
        read.append(len(data))
        return data

    read_original = storage.read_bytes
    monkeypatch.setattr(storage, "read_bytes", read_bytes)
    shard = PlannedShard("train-00000-of-00001", "train", images=1, first=0, entry=None)
    assert sidecars.read_published_sidecar(str(tmp_path), shard) is None
    assert read == [(128 << 20) + 1]


@pytest.mark.parametrize("refs", [[REF, ref(key="b.jpg", crc32c=7)], [b"12345678", b"abcdefgh"]])
def test_references_or_fingerprints_are_read(refs: list[bytes], tmp_path: Path) -> None:
    info = finish_shard(tmp_path, begin(tmp_path))
    sidecar(tmp_path).unlink()
    sidecars.write_sidecar(str(tmp_path), info, [], refs=refs)
    read = sidecars.read_sidecar(str(tmp_path), info.shard.name)
    assert read
    assert read.refs == refs


def test_a_sidecar_with_many_references_takes_little_memory(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    refs = [ref(key=f"{number}.jpg") for number in range(50_000)]
    sidecar(tmp_path).unlink()
    sidecars.write_sidecar(str(tmp_path), info, [], refs=refs)
    tracemalloc.start()
    read = sidecars.read_sidecar(str(tmp_path), info.shard.name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read
    assert read.refs == refs
    assert peak < 250 * len(refs)


@pytest.mark.parametrize(("refs", "are_read"), [([REF], True), ([b"12345678"], False)])
def test_an_image_without_a_key_is_not_read(
    refs: list[bytes], are_read: bool, tmp_path: Path
) -> None:
    """Only sidecars of rows hold no keys."""
    info = ShardInfo(shard=shard_of(begin(tmp_path), split="none"))
    sidecars.write_sidecar(str(tmp_path), info, [], refs=refs)
    (tmp_path / ".beam_tfr").rename(tmp_path / ".sources")
    shard = PlannedShard(info.shard.name, "none", images=1, first=0, entry=None)
    assert (known.read_sources(str(tmp_path), shard) is not None) == are_read
    of_rows = shard._replace(has_keys=False)
    assert known.read_sources(str(tmp_path), of_rows) is not None


def test_sidecars_of_another_plan_are_ignored(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    for shard, split in ((0, "train"), (0, "none")):
        info = finish_shard(tmp_path, plan, shard, split)
        assert sidecars.read_finished(str(tmp_path), info.shard) == info
        assert (
            sidecars.read_finished(
                str(tmp_path), info.shard._replace(recipe=make_plan(seed=1).recipe)
            )
            is None
        )
    swapped = sidecar(tmp_path, 1)
    swapped.write_bytes(sidecar(tmp_path, 0).read_bytes())
    assert sidecars.read_finished(str(tmp_path), shard_of(plan, 1)) is None
    assert (
        sidecars.read_finished(str(tmp_path), info.shard._replace(total=9)) is None
    )  # and is made again
    assert sidecars.read_finished(str(tmp_path), info.shard) is None


@pytest.mark.parametrize("change", ["removed", "emptied", "appended", "one bit", "a folder"])
def test_a_finished_shard_with_a_changed_file_is_written_again(tmp_path: Path, change: str) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    file = built_file(tmp_path, info)
    data = file.read_bytes()
    file.unlink()
    if change == "a folder":
        file.mkdir()
    elif change != "removed":
        changed = {
            "emptied": b"",
            "appended": data + b"\0",
            "one bit": bytes([data[0] ^ 1]) + data[1:],
        }
        file.write_bytes(changed[change])
    assert sidecars.read_finished(str(tmp_path), info.shard) is None


def test_a_finished_shard_is_read_only_if_its_time_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = finish_shard(tmp_path, begin(tmp_path))
    read: list[str] = []
    open_binary = storage.open_binary
    monkeypatch.setattr(storage, "open_binary", lambda path: read.append(path) or open_binary(path))
    assert sidecars.read_finished(str(tmp_path), info.shard) == info
    assert not read
    file = built_file(tmp_path, info)
    os.utime(file)  # as of a copy of the folder
    found = dataclasses.replace(info, generation=file.stat().st_mtime_ns)
    assert sidecars.read_finished(str(tmp_path), info.shard) == found
    assert len(read) == 1


def test_reject_lines_survive_byte_for_byte(tmp_path: Path) -> None:
    begin(tmp_path)
    shard = shard_of(make_plan(), split="none")
    lines = [
        Reject(f"{i}\r\x85\u2028\udcff", "s", "not-found", "\x0b\x0c").to_json() for i in range(50)
    ]
    sidecars.write_sidecar(str(tmp_path), ShardInfo(shard=shard), lines)
    assert b"".join(sidecars.read_rejects(str(tmp_path), shard.name)).decode() == "".join(
        f"{line}\n" for line in lines
    )
    sidecars.write_sidecar(str(tmp_path), ShardInfo(shard=shard), [])
    assert list(sidecars.read_rejects(str(tmp_path), shard.name)) == []
