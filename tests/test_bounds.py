"""A look at an input takes bounded memory and time, whatever the input is made of."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from beam_tfr import storage
from beam_tfr.inputs.archives import list_images
from beam_tfr.launch import bounds
from beam_tfr.launch.bounds import bounded_look
from beam_tfr.storage import opened
from tests.conftest import SAMPLE
from tests.converted import write_photos

# A command with small bounds, of which a step of the look is the function that is named first.
PROGRAM = """
import sys
from beam_tfr import cli, first_look
from beam_tfr.launch import bounds

def grow_for_ever(*_, **__):
    held = []
    while True:
        held.append(b"x" * 1_000_000)

def loop_for_ever(*_, **__):
    while True:
        pass

step = sys.argv.pop(1)
if step == "grow_for_ever":
    bounds.MOST_BYTES = 64 << 20
else:
    bounds.MOST_S = 0.5
first_look.describe_mask_folders = globals()[step]
cli.run()
"""


@pytest.mark.parametrize(
    ("command", "step", "excess"),
    [
        ("plan", "loop_for_ever", r"[0-9]+ s of CPU time"),
        ("convert", "grow_for_ever", r"[0-9]+\.[0-9] GB of memory"),
    ],
)
def test_a_look_that_never_ends_is_ended(
    command: str, step: str, excess: str, tmp_path: Path
) -> None:
    write_photos(tmp_path / "in")
    arguments = ["--input", tmp_path / "in", "--layout", "{split}/{label}/*"]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, step, command, *arguments, "--output", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    given = re.escape(str(tmp_path / "in"))
    assert run.returncode == 1
    assert re.search(rf"beam-tfr {command}: looking at '{given}' took {excess}", run.stderr)
    assert not (tmp_path / "out").exists()


def test_bytes_that_are_opened_allow_more() -> None:
    before = bounds._Usage(peak_bytes=0, cpu_s=0.0, opened_bytes=100)
    most = bounds._Usage(bounds.MOST_BYTES, bounds.MOST_S, 100)
    assert not most.describe_excess(before)
    for more in (most._replace(peak_bytes=most.peak_bytes + 64), most._replace(cpu_s=41.0)):
        assert more.describe_excess(before)
        assert not more._replace(opened_bytes=2_000_000).describe_excess(before)


def test_the_largest_files_and_the_last_one_are_named(tmp_path: Path) -> None:
    sizes = {"before": 90, "1": 3, "2": 5, "3": 1, "4": 4, "last": 2}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    storage.read_bytes(str(tmp_path / "before"))
    opened.forget_paths()
    for name in [*sizes][1:]:
        storage.read_bytes(str(tmp_path / name))
    assert opened.list_paths() == [str(tmp_path / name) for name in ("2", "4", "last")]


def test_archives_are_named(tmp_path: Path) -> None:
    archive = tmp_path / "in.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(next(SAMPLE.rglob("*.jpg")), "a/1.jpg")
    opened.forget_paths()
    file = storage.Entry(str(archive), archive.stat().st_size, 0)
    assert len([*list_images(file)]) == 1
    assert opened.list_paths() == [str(archive)]


def test_nothing_is_bounded_in_a_program_of_somebody_else() -> None:
    before = threading.active_count()
    with bounded_look(["in"]):
        assert threading.active_count() == before
