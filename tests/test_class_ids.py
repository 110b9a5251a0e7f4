"""Label ids that a new class would shift.

convert and plan say so, and `--classes DATASET` keeps them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from tests.conftest import Run, files_of
from tests.fixtures import save, smooth

Command = Callable[..., Run]
SHIFTED = "cat 0 -> 1, dog 1 -> 2, new: bird"


def add_class(photos: Path, name: str) -> None:
    (photos / name).mkdir(parents=True)
    for number in range(2):
        (photos / name / f"{number}.png").write_bytes(save(smooth(8, 8 + number), "PNG"))


@pytest.fixture
def call(beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Converts or plans `photos` to `the set`, which holds a dataset of cat and dog.

    `photos` has bird too.
    """
    monkeypatch.chdir(tmp_path)

    def call(command: str, *more: object) -> Run:
        output = [] if "--output" in more else ["--output", "the set"]
        return beam_tfr(command, "--input", "photos", "--image_size", "8", *output, *more)

    for name in ("cat", "dog"):
        add_class(Path("photos"), name)
    assert call("convert").code == 0
    add_class(Path("photos"), "bird")
    return call


def ids_of(folder: str) -> dict[str, int]:
    """Class -> label id, as they are in the records."""
    found = {}
    for shard in Path(folder).glob("*.tfrecord.gz"):
        for record in map(parse_example, RecordFile(str(shard))):
            found[record["image/class/text"][0].decode()] = record["image/class/label"][0]
    return found


@pytest.mark.slow
def test_new_ids_are_told_and_the_cure_works_as_it_is_written(
    call: Command, beam_tfr: Command, tmp_path: Path
) -> None:
    before = files_of(Path("the set"))
    cure = f"--classes {shlex.quote(str(tmp_path / 'the set'))}"
    for command in ("convert", "plan"):
        refused = call(command)
        told = (
            f"images before, 6 now\n  the class ids: {SHIFTED} (add {cure} to keep the old ones)\n"
        )
        assert (refused.code, told in refused.err) == (2, True)
    kept = call("convert", *shlex.split(cure), "--output", "kept")
    assert kept.code == 0, kept.err
    assert read_manifest("kept").class_names == ("cat", "dog", "bird")
    assert ids_of("kept") == {"cat": 0, "dog": 1, "bird": 2}
    assert files_of(Path("the set")) == before
    # It is the same dataset again by its own classes, and another one without.
    assert call("convert", "--output", "kept", "--classes", "kept/manifest.json", "--json").json[
        "complete_already"
    ]
    refused = call("convert", "--output", "kept")
    assert (
        refused.code,
        "the class ids: cat 0 -> 1, dog 1 -> 2, bird 2 -> 0 (add " in refused.err,
    ) == (2, True)
    for shard in Path("kept").glob("*.tfrecord.gz"):
        shard.unlink()
    assert beam_tfr("repair", "kept", "--input", "photos").code == 0
    assert ids_of("kept") == {"cat": 0, "dog": 1, "bird": 2}


def test_overwriting_tells_the_new_ids(call: Command) -> None:
    assert call("plan", "--overwrite").out.endswith(
        f"replaces the one in {Path.cwd()}/the set; class ids: {SHIFTED}\n"
    )
    replaced = call("convert", "--overwrite", "--json")
    assert (replaced.json["new_ids"], ids_of("the set")) == (
        SHIFTED,
        {"bird": 0, "cat": 1, "dog": 2},
    )
    kept = call("convert", "--overwrite", "--classes", "the set")
    assert (kept.code, "class ids" in kept.out) == (0, False)


def test_a_class_without_images_keeps_its_id(call: Command) -> None:
    for file in Path("photos/cat").iterdir():
        file.unlink()
    saved = ["--output", "planned", "--classes", "the set"]
    assert call("convert", *saved).code == 0
    assert read_manifest("planned").class_names == ("cat", "dog", "bird")
    assert ids_of("planned") == {"dog": 1, "bird": 2}


def test_what_is_no_dataset_is_told(call: Command, beam_tfr: Command) -> None:
    assert beam_tfr("convert", "--input", "photos", "--output", "plain", "--layout", "*").code == 0
    told = {
        "photos": "it is a folder; give one class per line, or a dataset",
        "plain": "is a dataset without classes",
        "photos/manifest.json": "No such file or directory",
    }
    for path, message in told.items():
        refused = call("plan", "--classes", path)
        assert (refused.code, f"--classes {path}: " in refused.err, message in refused.err) == (
            2,
            True,
            True,
        )
    Path("the set/manifest.json").write_text("{}")
    refused = call("plan", "--classes", "the set")
    assert (refused.code, "manifest.json is not a manifest" in refused.err) == (2, True)
