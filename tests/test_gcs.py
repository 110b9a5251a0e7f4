"""Reading and listing gs:// against a server that fails.

Every fault is waited out, or told by its name.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import apache_beam as beam
import google_crc32c
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_tfr import storage
from beam_tfr.dataset.manifest import check_not_replaced, check_shard_files, read_manifest
from beam_tfr.inputs import ranges
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.patterns import common_root, compile_exclusion, order_patterns
from beam_tfr.inputs.read_ahead import ReadAhead
from beam_tfr.inputs.reading import read_image
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.planning import packing
from beam_tfr.schema.errors import DataError, RejectError, UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.storage import Entry
from beam_tfr.transforms import references
from tests.conftest import wait_for
from tests.converted import converted_photos
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import Clock

DATA = random.Random(7).randbytes(50_000)


def threads(name: str) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == name}


def entry(name: str) -> Entry:
    (found,) = match_files(
        [(f"gs://b/{re.sub(r'[*?{[]', lambda match: f'[{match[0]}]', name)}", ())]
    )
    return found


# One request


def test_an_image_is_one_request_for_the_generation_that_was_listed(fake: FakeGcs) -> None:
    fake.put("a/1.jpg", DATA)
    listed = entry("a/1.jpg")
    assert listed == Entry(
        "gs://b/a/1.jpg", len(DATA), listed.generation, google_crc32c.value(DATA)
    )
    assert listed.generation > 0
    fake.take_log()
    assert read_image(listed) == DATA
    wanted = {"alt": "media", "ifGenerationMatch": str(listed.generation)}
    assert fake.take_log() == [{"method": "GET", "name": "a/1.jpg", "signed": "no", **wanted}]
    assert read_image(Entry("gs://b/a/1.jpg", 0, 0)) == DATA
    assert fake.take_log() == [{"method": "GET", "name": "a/1.jpg", "signed": "no", "alt": "media"}]


def test_connections_are_kept_and_as_many_as_there_are_threads(fake: FakeGcs) -> None:
    sources = []
    for i in range(120):
        fake.put(f"{i}", b"%d" % i)
        sources.append(Entry(f"gs://b/{i}", 0, 0))
    storage.read_bytes(sources[0].path)
    fake.counts()
    fake.set(together={"downloads": (0, 30)})
    ahead = ReadAhead(images=30)
    assert list(ahead.read(sources)) == [b"%d" % i for i in range(120)]
    assert list(ahead.read(sources)) == [b"%d" % i for i in range(120)]
    ahead.close()
    counts = fake.counts()
    assert counts["most"]["downloads"] == 30
    assert counts["connections"] <= 31  # one of them is this question


def test_what_is_too_large_is_not_fetched(fake: FakeGcs) -> None:
    fake.put("large", bytes(2_000_000))
    listed = entry("large")
    fake.take_log()
    with pytest.raises(RejectError, match=r"^file-too-large: more than 1000 bytes$"):
        read_image(listed, max_bytes=1000)
    assert fake.take_log() == []
    assert storage.read_bytes("gs://b/large", max_bytes=1000) == bytes(1001)
    with pytest.raises(RejectError, match=r"^file-too-large: more than 1000 bytes$"):
        read_image(Entry("gs://b/large", 0, 0), max_bytes=1000)
    assert storage.sha256_of_small("gs://b/large", 1000) == ""
    wait_for(lambda: fake.counts()["running"] == 0)


def test_an_object_replaced_or_deleted_after_the_listing(fake: FakeGcs) -> None:
    for name in ("replaced", "deleted", "replaced-now", "deleted-now", "empty"):
        fake.put(name, b"" if name == "empty" else DATA)
    listed = {
        name: entry(name)
        for name in ("replaced", "deleted", "replaced-now", "deleted-now", "empty")
    }
    fake.put("replaced", b"other")
    storage.delete("gs://b/deleted")
    fake.set(faults={"replaced-now": ["503", "change"], "deleted-now": ["cut:0.5", "vanish"]})
    found = {}
    for name, source in listed.items():
        with pytest.raises(RejectError) as caught:
            read_image(source)
        found[name] = str(caught.value).split(" (HTTP")[0]
        assert not caught.value.may_pass
    assert found == {
        "replaced": "changed-while-reading: it was replaced after it was listed",
        "replaced-now": "changed-while-reading: it was replaced after it was listed",
        "deleted": "not-found: no such bucket or object",
        "deleted-now": "not-found: no such bucket or object",
        "empty": "empty-file: 0 bytes",
    }
    assert storage.read_bytes("gs://b/replaced") == b"other"


def test_a_dataset_replaced_while_it_is_read_is_told_with_one_request(fake: FakeGcs) -> None:
    fake.put_folder(converted_photos(), "set")
    dataset = read_manifest("gs://b/set")
    fake.take_log()
    check_not_replaced(dataset)
    assert [request["name"] for request in fake.take_log()] == ["set/manifest.json"]
    fake.delete("set/manifest.json")
    for data in (None, b"", b"{}" * 100_000):
        if data is not None:
            fake.put("set/manifest.json", data)
        with pytest.raises(DataError, match="another dataset replaced "):
            check_not_replaced(dataset)


def test_a_manifest_that_is_stored_compressed_is_that_of_its_dataset(fake: FakeGcs) -> None:
    fake.put_folder(converted_photos(), "set")
    data = storage.read_bytes("gs://b/set/manifest.json")
    fake.put("set/manifest.json", gzip.compress(data), encoding="gzip")
    dataset = read_manifest("gs://b/set")
    check_not_replaced(dataset)
    fake.put("set/manifest.json", gzip.compress(data.replace(b"0", b"1")), encoding="gzip")
    with pytest.raises(DataError, match="another dataset replaced "):
        check_not_replaced(dataset)
    fake.put("set/manifest.json", data)
    shard = next(split.shards[0].file for split in dataset.splits.values() if split.shards)
    stored = gzip.compress(storage.read_bytes(f"gs://b/set/{shard}"))
    fake.put(f"set/{shard}", stored, encoding="gzip")
    with pytest.raises(DataError, match="uploaded with -z or -Z, which compress files"):
        check_shard_files(dataset, dataset.splits.values())


def test_content_encoding_gzip(fake: FakeGcs) -> None:
    fake.put("gzip", gzip.compress(DATA, mtime=0), encoding="gzip")
    fake.put("two", gzip.compress(DATA[:9], mtime=0) + gzip.compress(DATA[9:]), encoding="gzip")
    fake.put("bomb", gzip.compress(bytes(50_000_000)), encoding="gzip")
    fake.put("plain", DATA, encoding="gzip")
    fake.put("short", gzip.compress(DATA, mtime=0)[:-20], encoding="gzip")
    fake.put("none", gzip.compress(DATA, mtime=0))
    fake.set(faults={"gzip": ["cut:0.5", "corrupt", "503"]})
    assert read_image(Entry("gs://b/gzip", 0, 0)) == DATA
    assert read_image(Entry("gs://b/two", 0, 0)) == DATA
    assert read_image(Entry("gs://b/none", 0, 0)) == gzip.compress(DATA, mtime=0)
    with pytest.raises(RejectError, match=r"^file-too-large: more than 1000000 bytes$"):
        read_image(Entry("gs://b/bomb", 0, 0), max_bytes=1_000_000)
    for name in ("plain", "short"):
        with pytest.raises(
            RejectError,
            match=r"^unusable-file: its Content-Encoding is gzip, but its bytes are not: ",
        ):
            read_image(Entry(f"gs://b/{name}", 0, 0))
    with storage.open_binary("gs://b/gzip") as file:  # what lies there
        assert file.read() == gzip.compress(DATA, mtime=0)


ODD_NAMES = [
    *(
        "a b.jpg",
        "a#1.jpg",
        "b?2",
        "c 3%20",
        "100%",
        "d[1].jpg",
        "e{x,y}",
        "f*",
        "é",
        "花/花.jpg",
        "new\nline.jpg",
    ),
    *(
        "/leading",
        "//two",
        "h//i",
        "f/../g",
        "./x",
        "trailing/",
        "+plus",
        "a&b=c",
        "semi;colon",
        "back\\slash",
        "'\"",
    ),
]


def test_odd_names(fake: FakeGcs) -> None:
    fake.set(page_size=3)
    for name in ODD_NAMES:
        fake.put(name, name.encode())
    for folder in ("folder/", "a/b/"):  # as the console makes them
        fake.put(folder, b"")
    found = sorted(match_files([("gs://b/**", ())]))
    assert [entry.path for entry in found] == sorted(f"gs://b/{name}" for name in ODD_NAMES)
    for listed in found:
        assert read_image(listed) == listed.path[len("gs://b/") :].encode()
    for name in ODD_NAMES:
        if not name.endswith("/"):
            assert entry(name) in found
    assert storage.list_folder("gs://b/h") == []
    assert storage.list_folder("gs://b/f") == []
    assert storage.list_folder("gs://b/花") == ["花.jpg"]
    for listed in found:
        storage.delete(listed.path)
    assert fake.names() == ["a/b/", "folder/"]


# Faults that pass


TENTHS = [f"cut:{tenth / 10}" for tenth in range(10)]


@pytest.mark.parametrize(
    "faults",
    [
        *(["408"], ["429"], ["429:0.05"], ["500"], ["502"], ["503"], ["504"], ["503"] * 6),
        *(
            ["reset"],
            ["corrupt"],
            ["corrupt", "cut:0.5"],
            TENTHS,
            ["cut:0.99", "corrupt", "503", "reset"],
        ),
    ],
    ids=lambda faults: "+".join(faults)[:30],
)
def test_a_fault_that_passes_is_waited_out(fake: FakeGcs, faults: list[str]) -> None:
    fake.put("x", DATA)
    fake.set(faults={"x": list(faults)})
    assert read_image(Entry("gs://b/x", 0, 0)) == DATA
    assert len(fake.take_log()) == len(faults) + 1
    fake.set(faults={"x": list(faults)})
    with storage.open_binary("gs://b/x") as file:
        assert file.read() == DATA


def test_retry_after_is_obeyed(fake: FakeGcs, clock: Clock) -> None:
    fake.put("x", DATA)
    for date_or_seconds, least in (("60", 60), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)):
        fake.set(faults={"x": [f"429:{date_or_seconds}"]})
        started = clock.now
        assert read_image(Entry("gs://b/x", 0, 0)) == DATA
        assert least <= clock.now - started <= least + 0.25


def test_a_stalled_stream_is_begun_anew(fake: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.transfer, "STALL_S", 0.3)
    fake.put("x", DATA)
    fake.set(faults={"x": ["stall", "stall"]})
    assert read_image(Entry("gs://b/x", 0, 0)) == DATA
    assert len(fake.take_log()) == 3


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("503", r"the service failed \(HTTP 503\): said 503"),
        ("429:30", r"the service failed \(HTTP 429\): said 429"),
        ("corrupt", "DataCorruption: checksum mismatch: the bytes received are not those stored"),
        ("cut:0.5", "ConnectionError: .*"),
        ("reset", "ConnectionError: .*"),
        ("stall", "TimeoutError: .*"),
    ],
)
def test_at_the_deadline_the_last_cause_is_told(
    fake: FakeGcs, clock: Clock, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    if fault == "stall":
        monkeypatch.setattr(storage.transfer, "STALL_S", 0.1)
    fake.put("x", DATA)
    fake.set(faults={"x": [fault] * 10_000})
    started = clock.now
    told = f"^unreadable: retried until the deadline; the last error: {said}$"
    with pytest.raises(RejectError, match=told) as caught:
        read_image(Entry("gs://b/x", 0, 0))
    assert clock.now - started <= storage.DEADLINE_S
    assert caught.value.may_pass


def test_a_throttled_request_waits_while_others_are_served(
    fake: FakeGcs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        clock.now += seconds
        assert storage.read_bytes("gs://b/other") == b"other"

    fake.put("other", b"other")
    fake.put("x", DATA)
    monkeypatch.setattr(clock, "sleep", sleep)
    for fault in ("429:30", "503:30"):
        fake.set(faults={"x": [fault] * 20})
        started = clock.now
        assert read_image(Entry("gs://b/x", 0, 0)) == DATA
        assert 600 <= clock.now - started <= 1000
    for fault, until in (("500:30", storage.DEADLINE_S), ("503:30", 3600)):
        fake.set(faults={"x": [fault] * 10_000})
        started = clock.now
        with pytest.raises(RejectError, match="retried until the deadline"):
            read_image(Entry("gs://b/x", 0, 0))
        assert until - 60 < clock.now - started <= until


def test_a_service_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    storage.gcs_client.make_client.cache_clear()
    monkeypatch.setattr(storage.download, "DEADLINE_S", 0.2)
    with pytest.raises(RejectError, match=r"^unreadable: retried until .*: ConnectionError: .*"):
        read_image(Entry("gs://b/x", 0, 0))
    storage.gcs_client.make_client.cache_clear()


def test_listings_survive_faults_on_every_page(fake: FakeGcs) -> None:
    for i in range(25):
        fake.put(f"p/{i}", b"x")
    fake.set(page_size=4, faults={"": ["503", "", "reset", "429:0.01", "", "500", "cut:0.4"]})
    assert len({entry.path for entry in storage.walk("gs://b/p", lambda _: True)}) == 25
    fake.set(faults={"p/1": ["503", "reset", "429"]})
    assert storage.find("gs://b/p/1").size_bytes == 1
    fake.set(faults={"p/1": ["503", "lost"]})
    storage.delete("gs://b/p/1")
    assert "p/1" not in fake.names()


@pytest.mark.parametrize(
    "listing",
    [
        "5",
        "[]",
        "<html>Sign in</html>",
        '{"items": 5}',
        '{"items": [5]}',
        '{"items": {"a": 1}}',
        '{"items": [{}]}',
        '{"items": [{"name": 5, "size": {}}]}',
        '{"items": [{"name": "a/1.jpg", "size": "1e99"}]}',
        '{"items": [{"name": "a/1.jpg", "size": 1e999}]}',
        '{"items": [{"name": "a/1.jpg", "size": NaN}]}',
        '{"items": [{"name": "a/1.jpg", "generation": []}]}',
        '{"items": [{"name": "a/1.jpg", "crc32c": 5}]}',
        '{"items": [{"name": "a/\\ud800.jpg"}]}',
        "[" * 200_000,
    ],
    ids=lambda listing: listing[:50],
)
def test_a_listing_in_another_form_is_one_error(fake: FakeGcs, listing: str) -> None:
    fake.set(listing=listing)
    with pytest.raises(UsageError, match="not from Cloud Storage"):
        list(match_files([("gs://b/a/**", ())]))


def test_a_listing_whose_pages_repeat_ends(fake: FakeGcs) -> None:
    fake.set(listing='{"items": [{"name": "a/1.jpg", "size": "5"}], "nextPageToken": "t"}')
    with pytest.raises(UsageError, match="again and again"):
        list(match_files([("gs://b/a/**", ())]))


def test_a_part_with_more_bytes_than_requested_is_an_error(fake: FakeGcs) -> None:
    fake.put("x", DATA)
    assert storage.read_part("gs://b/x", 5, 100) == DATA[5:105]
    fake.set(num_extra=1)
    with pytest.raises(OSError, match="more than the 100 bytes"):
        storage.read_part("gs://b/x", 5, 100)


def test_the_files_of_a_split_are_found_by_listing_them(fake: FakeGcs) -> None:
    fake.put_folder(converted_photos("--num_shards 3"), "d")
    dataset = read_manifest("gs://b/d")
    assert read_manifest("gs://b/d") is dataset  # the same bytes are parsed once
    fake.take_log()
    check_shard_files(dataset, [dataset.splits["train"]])
    assert [request["prefix"] for request in fake.take_log()] == [f"d/{dataset.name}-"]
    fake.delete(f"d/{dataset.splits['train'].shards[1].file}")
    with pytest.raises(DataError, match=rf"/d/{dataset.splits['train'].shards[1].file} is missing"):
        check_shard_files(dataset, [dataset.splits["train"]])


# Faults that do not


def test_what_may_not_be_read_names_the_permission(fake: FakeGcs) -> None:
    fake.put("x", DATA)
    fake.set(denied=["GET", "POST", "DELETE"])
    of = "the account of this run needs storage.objects"
    said = rf"no permission \(HTTP 403\): said 403; {of}"
    with pytest.raises(RejectError, match=rf"^unreadable: {said}\.get on gs://b$"):
        read_image(Entry("gs://b/x", 0, 0))
    for pattern, path, permission in (
        ("gs://b/*", "gs://b: ", "list"),
        ("gs://b/x", "gs://b/x: ", "get"),
    ):
        listed = re.escape(f"`input={pattern}`: cannot be listed: {path}")
        with pytest.raises(UsageError, match=rf"^{listed}{said}\.{permission} on gs://b$"):
            list(match_files([(pattern, ())]))
    with pytest.raises(PermissionError, match=rf"{said}\.delete on gs://b"):
        storage.delete("gs://b/x")
    with pytest.raises(PermissionError, match=rf"{said}\.create on gs://b"):
        storage.write_bytes("gs://b/y", b"", scratch="", replace=False)
    requests = [request["name"] for request in fake.take_log()]
    assert requests.count("x") <= 6  # none of them repeated
    assert requests.count("y") == 1
    fake.set(faults={"x": ["401"] * 9})
    with pytest.raises(RejectError, match=r"^unreadable: (not signed in|no credentials)"):
        read_image(Entry("gs://b/x", 0, 0))


def test_with_an_emulator_no_credentials_are_looked_for(fake: FakeGcs, tmp_path: Path) -> None:
    """Not even those that a variable names: reading them would fail."""
    fake.put("p/hat/1.jpg", b"no image")
    environment = {
        **os.environ,
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none"),
        "HOME": str(tmp_path),
    }
    environment.pop("NO_GCE_CHECK", None)
    code = "from beam_tfr.storage import *; from beam_tfr import storage; print(storage.read_bytes('gs://b/p/hat/1.jpg'))"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "b'no image'\n", "")
    assert {request["signed"] for request in fake.take_log()} == {"no"}


def test_a_missing_bucket_is_told(fake: FakeGcs) -> None:
    with pytest.raises(
        RejectError, match=r"^unreadable: no such bucket or object \(HTTP 404\)"
    ) as caught:
        read_image(Entry("gs://none/x", 0, 0))
    assert caught.value.may_pass
    with pytest.raises(
        FileNotFoundError, match=r"no such bucket or object \(HTTP 404\).*: 'gs://none'"
    ):
        list(storage.walk("gs://none", lambda _: True))


# Reading ahead


def test_bytes_ahead_are_bounded(fake: FakeGcs) -> None:
    sources = []
    for i in range(12):
        fake.put(f"{i}", bytes([i]) * 1_000_000)
        sources.append(Entry(f"gs://b/{i}", 1_000_000, 0))
    fake.take_log()
    ahead = ReadAhead(images=10, ahead_bytes=3_000_000)
    contents = ahead.read(sources)
    asked = 0
    for i in range(12):
        assert next(contents) == bytes([i]) * 1_000_000
        asked += len(fake.take_log())
        assert asked <= i + 4
    ahead.close()
    small = ReadAhead(images=10, ahead_bytes=1)  # each comes alone
    assert [len(content or b"") for content in small.read(sources)] == [1_000_000] * 12  # type: ignore[arg-type]
    small.close()


def test_a_consumer_that_goes_away_ends_the_reading(fake: FakeGcs) -> None:
    for i in range(40):
        fake.put(f"{i}", DATA)
    fake.set(faults={f"{i}": ["503"] * 1000 for i in range(40)})
    ahead, before = ReadAhead(images=8), threads("beam_tfr-read")
    contents = ahead.read([Entry(f"gs://b/{i}", 0, 0) for i in range(40)])
    log = list[object]()
    # the log is emptied when it is taken
    wait_for(lambda: log.extend(fake.take_log()) or len(log) > 8)
    ahead.close()
    first = next(contents)  # its tries end before their deadline
    assert isinstance(first, RejectError)
    assert (first.reason, first.may_pass) == ("unreadable", True)
    wait_for(lambda: not threads("beam_tfr-read") - before)
    contents.close()  # type: ignore[attr-defined]


def test_an_early_end_leaves_nothing_to_do(fake: FakeGcs) -> None:
    for i in range(60):
        fake.put(f"{i}", b"x")
    fake.set(latency_s=0.1)
    ahead = ReadAhead(images=4)
    contents = ahead.read([Entry(f"gs://b/{i}", 0, 0) for i in range(60)])
    assert next(contents) == b"x"
    contents.close()  # type: ignore[attr-defined]
    wait_for(lambda: fake.counts()["running"] == 0)
    assert len(fake.take_log()) <= 9
    fake.set()
    assert list(ahead.read([Entry("gs://b/1", 0, 0)])) == [b"x"]
    ahead.close()


HANGS = """
from beam_tfr.inputs.read_ahead import ReadAhead
from beam_tfr.storage import Entry
contents = ReadAhead(images=4).read([Entry("gs://b/x", 0, 0)] * 9)
import threading; threading.Thread(target=next, args=(contents,), daemon=True).start()
while not any(thread.name == "beam_tfr-read" for thread in threading.enumerate()): pass
"""


def test_a_process_ends_though_the_service_hangs(fake: FakeGcs) -> None:
    fake.put("x", DATA)
    fake.set(latency_s=3600)
    subprocess.run([sys.executable, "-c", HANGS], check=True)
    fake.set()


# Listing


def test_patterns_are_listed_by_their_beginning(fake: FakeGcs) -> None:
    for name in (
        "a/2023-1/x.jpg",
        "a/2023-2/y.jpg",
        "a/2024-1/z.jpg",
        "a/top.jpg",
        "b/q.jpg",
        "a/2023",
    ):
        fake.put(name, b"x")

    def listed(pattern: str) -> tuple[set[str], list[str]]:
        fake.take_log()
        found = {entry.path[len("gs://b/") :] for entry in match_files([(f"gs://b/{pattern}", ())])}
        return found, [
            request.get("prefix", "") + request.get("delimiter", "")
            for request in fake.take_log()
            if not request["name"]
            and request.get("prefix", "")[:1] in ("", "a", "b")  # not of a listing that was left
        ]

    assert listed("a/2023-*/*.jpg") == ({"a/2023-1/x.jpg", "a/2023-2/y.jpg"}, ["a/2023-"])
    assert listed("a/*.jpg") == ({"a/top.jpg"}, ["a//"])
    assert listed("a/2023*") == ({"a/2023"}, ["a/2023/"])
    assert listed("*/*.jpg") == ({"a/top.jpg", "b/q.jpg"}, [""])
    assert listed("{a,b}/*.jpg") == ({"a/top.jpg", "b/q.jpg"}, [""])
    assert listed("a/{2023-1,2024-1}/*") == ({"a/2023-1/x.jpg", "a/2024-1/z.jpg"}, ["a/"])
    assert listed("b/**") == ({"b/q.jpg"}, ["b/"])


def test_many_patterns_are_listed_in_parallel_each_file_once(fake: FakeGcs) -> None:
    for i in range(60):
        fake.put(f"{i % 7}/{i}.jpg", b"x")
    patterns = [f"gs://b/{i % 7}/{i}.jpg" for i in range(60)] + [
        "gs://b/1/*.jpg",
        "gs://b/{1,2}/*",
        "gs://b/6/**",
    ]
    fake.counts()
    fake.set(together={"others": (0, 11)})
    before = threads("beam_tfr-list")
    found = list(match_files(order_patterns(patterns)))
    assert sorted(entry.path for entry in found) == sorted(
        f"gs://b/{i % 7}/{i}.jpg" for i in range(60)
    )
    assert fake.counts()["most"]["others"] >= 11
    with pytest.raises(UsageError, match=r"^`input=gs://b/9/x\.jpg`: matches no file"):
        list(match_files(order_patterns([*patterns, "gs://b/9/x.jpg"])))
    some = match_files(order_patterns(patterns))
    next(some)
    some.close()  # type: ignore[attr-defined]
    wait_for(lambda: not threads("beam_tfr-list") - before)


@pytest.mark.parametrize(
    "patterns",
    [
        ["**"],
        ["**/*.jpg", "p/0*.jpg", "p/00*.jpg"],
        ["**/last", "p/*.jpg"],
        ["p/*/*/*", "p/{0,1}*"],
    ],
)
def test_a_large_listing_is_divided_and_lists_each_file_once(
    fake: FakeGcs, monkeypatch: pytest.MonkeyPatch, patterns: list[str]
) -> None:
    numbered = [f"p/{number:03}.jpg" for number in range(40)]
    names = [
        *ODD_NAMES,
        *numbered,
        *(f"p/花/{number}/{name}.jpg" for number in range(9) for name in "ab"),
        "z/last",
    ]
    for name in names:
        fake.put(name, b"x")
    patterns = [f"gs://b/{pattern}" for pattern in patterns]
    whole = sorted(match_files(order_patterns(patterns)))

    fake.set(page_size=4)
    fake.take_log()
    monkeypatch.setattr(references, "LIMITS", {"": 5, "Ranges": 7, "Rest": None})
    monkeypatch.setattr(references, "RANGES", 6)
    monkeypatch.setattr(ranges, "FEW", 3)
    step = references.MatchImages(patterns, Labeler(parse_layout("*")))
    with beam.Pipeline(FnApiRunner(), options=PipelineOptions([])) as pipeline:
        refs = pipeline | step
        keys = (
            refs
            | beam.FlatMap(packing.unpack_values)
            | beam.Map(lambda ref: ImageRef.decode(ref).key)
        )
        assert_that(
            keys | beam.combiners.Count.PerElement(),
            equal_to([(entry.path.removeprefix(common_root(patterns)), 1) for entry in whole]),
        )
    starts = {request["startOffset"] for request in fake.take_log() if "startOffset" in request}
    assert len(starts) > 6


def test_exclude_on_gs(fake: FakeGcs) -> None:
    for name in ("p/a/1.jpg", "p/a/thumbs/2.jpg", "p/b/3.gif", "p/b/4.jpg"):
        fake.put(name, b"x")
    exclude = compile_exclusion(["**/thumbs/**", "gs://b/p/b/*.gif"], "gs://b/p/")
    found = {entry.path for entry in match_files([("gs://b/p/**", ())], exclude=exclude)}
    assert found == {"gs://b/p/a/1.jpg", "gs://b/p/b/4.jpg"}
