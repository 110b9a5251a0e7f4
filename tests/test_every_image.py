"""A folder that holds the special and broken files that the tests know.

Each becomes a record or a named reject.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from pathlib import Path

from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.dataset import ADJUSTMENTS, REJECT_REASONS
from tests.conftest import Run
from tests.fixtures import Fixture, all_fixtures

Command = Callable[..., Run]


# Each takes seconds; a slow test of test_images_hostile converts them.
LONG = {
    f"hostile/{name}" for name in ("png-pixels-of-2-GiB", "png-10000x10000", "png-16-bit-8000x8000")
}
ALL: dict[str, Fixture] = {
    f"{topic}/{number:03d} {name.replace('/', ' of ')[:80]}.{fixture.extension}": fixture
    for number, (topic, _, name, fixture) in enumerate(
        (*key.partition("/"), one) for key, one in all_fixtures().items() if key not in LONG
    )
}
SHAPE = {"aspect-changed", "cropped", "enlarged"}  # by the size asked for, not by the file


def lay_out(folder: Path) -> Path:
    for name, fixture in ALL.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fixture.data)
    return folder


def test_every_file_becomes_what_is_expected_of_it(beam_tfr: Command, tmp_path: Path) -> None:
    assert len(ALL) > 150
    folder, output = lay_out(tmp_path / "in"), tmp_path / "out"
    run = beam_tfr(
        "convert",
        "--input",
        f"{folder}/**",
        "--output",
        output,
        "--layout",
        "{label}/*",
        "--max_rejects",
        "1.0",
        "--json",
    )
    assert run.code == 0, run.err
    summary = run.json

    rejects = [json.loads(line) for line in (output / "rejects.jsonl").read_text().splitlines()]
    found = {reject["key"]: reject["reason"] for reject in rejects}
    assert found == {name: fixture.reason for name, fixture in ALL.items() if fixture.reason}
    assert all(reject["detail"] and reject["reason"] in REJECT_REASONS for reject in rejects)
    assert {reject["stage"] for reject in rejects} <= {"ReadImages", "ResizeImages"}

    written = {
        parse_example(record)["image/filename"][0].decode()
        for shard in output.glob("*.tfrecord.gz")
        for record in RecordFile(str(shard))
    }
    assert written == {name for name, fixture in ALL.items() if not fixture.reason}

    expected = collections.Counter(what for fixture in ALL.values() for what in fixture.adjusted)
    assert {what: n for what, n in summary["adjusted"].items() if what not in SHAPE} == expected
    assert summary["matched"] == len(ALL) == summary["written"] + sum(summary["rejected"].values())
    assert summary["rejected"] == collections.Counter(found.values())
    assert beam_tfr("verify", output).code == 0


def test_every_reason_and_adjustment_has_a_file_that_shows_it() -> None:
    by_option = {  # tests of the option show these
        *(
            "too-few-pixels",
            "extreme-aspect",
            "several-frames",
            "decode-timeout",
            "crashed-decoder",
        ),
        *("re-encoded", "damage-kept", *SHAPE),
        *("pair-scaled", "pair-gray", "pair-missing", "margins-in-mask"),
        "duplicate",
        *(
            "boxes-repeated",
            "boxes-clipped",
            "boxes-dropped",
            "bad-boxes-dropped",
            "no-boxes",
            "without-boxes",
        ),
    }
    by_path = {
        "layout-mismatch",
        "unknown-class",
        "not-found",
        "changed-while-reading",
        "unreadable",
        "unusable-file",
        "file-too-large",
        "empty-file",
        "taken-down",
    }
    of_other_files = {"masks-too-large", "left-out", "bad-value", "not-an-array", "damaged-array"}
    reasons = {fixture.reason for fixture in ALL.values()} - {""}
    adjusted = {what for fixture in ALL.values() for what in fixture.adjusted}
    assert (
        reasons | adjusted | by_option | by_path | of_other_files
        == REJECT_REASONS.keys() | ADJUSTMENTS.keys()
    )
