"""Notes of a run: written after the dataset, taken once by the process that waits, and nothing is left of them."""

from __future__ import annotations

from pathlib import Path

from beam_tfr.launch import convert
from beam_tfr.options import ConvertOptions
from beam_tfr.output import notes
from beam_tfr.pipeline import Convert
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import fake, fake_server
from tests.test_counting import metrics_of

__all__ = ["fake", "fake_server"]

NOTES = {".md": 2, ".JPG": 1}


def test_notes_are_taken_once_and_leave_no_folder(tmp_path: Path) -> None:
    notes.write(str(tmp_path), "mine", NOTES)
    assert notes.take(str(tmp_path), "another") == {}
    assert notes.take(str(tmp_path), "mine") == NOTES
    assert notes.take(str(tmp_path), "mine") == {}
    assert [*tmp_path.iterdir()] == []


def test_notes_on_gs(fake: FakeGcs) -> None:
    notes.write("gs://b/out", "mine", NOTES)
    assert notes.take("gs://b/out", "mine") == NOTES
    assert fake.names() == []


def test_the_folder_of_the_next_run_stays(tmp_path: Path) -> None:
    notes.write(str(tmp_path), "mine", NOTES)
    (tmp_path / ".beam_tfr" / "lock.0").write_text("{}")
    assert notes.take(str(tmp_path), "mine") == NOTES
    assert [path.name for path in (tmp_path / ".beam_tfr").iterdir()] == ["lock.0"]


def test_counts_of_many_workers_add_up(photos: Path, tmp_path: Path) -> None:
    folders = sorted((photos / "train").iterdir())  # each is listed by itself
    for folder in folders:
        (folder / "readme.md").write_text("hats")
    (folders[0] / "sizes.txt").write_text("S, M, L")
    done = convert(ConvertOptions(input=tuple(map(str, folders)), output=str(tmp_path / "out"), layout="{label}/*"))
    assert len(folders) > 1
    assert done.skipped == {".md": len(folders), ".txt": 1}


def test_only_a_run_that_somebody_waits_for_writes_notes(photos: Path, tmp_path: Path) -> None:
    (photos / "train" / "hat" / "readme.md").write_text("hats")
    options = ConvertOptions(input=(str(photos),), output=tmp_path / "out", layout="{split}/{label}/*")
    metrics_of(lambda p: p | Convert(options))
    assert not (tmp_path / "out" / ".beam_tfr").exists()
    again = convert(options)  # complete already, but listed
    assert (again.fresh, again.skipped) == (False, {".md": 1})
    assert not (tmp_path / "out" / ".beam_tfr").exists()
