"""The package without extras reads, verifies and inspects; converting says which extra it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from beam_tfr import cli
from tests.conftest import few_at_once
from tests.converted import SAMPLE, converted_photos, once
from tests.installs import ROOT, copy_sources, site_packages

NUMBERS = """
import sys
folder, *missing = sys.argv[1:]
sys.modules.update(dict.fromkeys(missing))
import beam_tfr
if "pyarrow" not in missing:
    import pyarrow.compute
    records = beam_tfr.Records(folder, split="train")
    image, label = records[-1]
    assert image.shape == (224, 224, 3), image.shape
    assert len(records.where(pyarrow.compute.field("class") == "hat")) == 4
    assert beam_tfr.contents(folder, "test").count_rows() == 6
else:
    for use in (
        lambda: beam_tfr.Records(folder, split="train")[0],
        lambda: beam_tfr.contents(folder),
        lambda: beam_tfr.verify(folder),
    ):
        try:
            use()
        except beam_tfr.NotInstalledError as error:
            assert str(error) == "contents need pyarrow: pip install 'beam_tfr[contents]'", error
        else:
            raise AssertionError
"""
CONVERT = ["convert", "--input", f"{SAMPLE}/test/hat/*.jpg", "--output", "out"]
NEEDS = "beam-tfr convert: converting needs {}: pip install 'beam_tfr[convert]'\n"
WITHOUT = (
    "import sys; sys.modules[sys.argv.pop(1)] = None; from beam_tfr.cli import main; "
    "sys.exit(main())"
)
READ = """
import sys, beam_tfr
from beam_tfr.torch import ImageDataset
dataset = ImageDataset(sys.argv[1], split="train", output="dict")
shapes = [example["image"].shape for example in dataset]
assert shapes == [(224, 224, 3)] * 12, shapes
for function in (beam_tfr.convert, beam_tfr.plan):
    try:
        function(input="a/*.jpg", output="b")
    except ImportError as error:
        assert isinstance(error, beam_tfr.UsageError), error
"""


@pytest.mark.parametrize("library", few_at_once(["apache_beam", "cykooz_resizer"], "apache_beam"))
def test_converting_without_its_extra_says_which(library: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, library, *CONVERT]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
    )
    assert (run.returncode, run.stderr) == (2, NEEDS.format(library))


@pytest.mark.parametrize(
    "missing", few_at_once([["apache_beam", "tensorflow"], ["pyarrow"]], ["pyarrow"]), ids=" ".join
)
def test_contents_need_pyarrow_alone(missing: list[str]) -> None:
    command = [sys.executable, "-c", NUMBERS, converted_photos(), *missing]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr


def run_without(library: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process in which a library cannot be imported."""
    command = [sys.executable, "-c", WITHOUT, library, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def test_looking_for_removed_images_without_its_extra_says_which(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("train/hat/1.jpg\n")
    refused = run_without(
        "msgspec", "verify", converted_photos(), "--absent", tmp_path / "keys.txt"
    )
    needs = "beam-tfr verify: --absent needs msgspec: pip install 'beam_tfr[convert]'\n"
    assert (refused.returncode, refused.stderr) == (2, needs)


def write_table(folder: Path) -> None:
    photos = sorted((SAMPLE / "test" / "hat").glob("*.jpg"))[:2]
    folder.mkdir()
    (folder / "t.csv").write_text("\n".join(["path", *map(str, photos)]))
    convert_table = ["convert", "--table", f"{folder}/t.csv", "--uri_column", "path"]
    assert cli.main([*convert_table, "--output", f"{folder}/d"]) == 0


@pytest.mark.parametrize("library", few_at_once(["msgspec", "yaml"], "yaml"))
def test_comparing_with_tables_without_their_extra_says_which(library: str) -> None:
    folder = once("table_of_photos", write_table)
    refused = run_without(library, "verify", folder / "d", "--sources", folder / "t.csv")
    needs = f"--sources with tables needs {library}: pip install 'beam_tfr[convert]'"
    assert (refused.returncode, refused.stderr) == (2, f"beam-tfr verify: {needs}\n")


@pytest.mark.slow
def test_a_light_install_reads_and_inspects(tmp_path: Path) -> None:
    python = tmp_path / "light" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python.parents[1]], check=True)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    subprocess.run(
        [*install, "-c", ROOT / "requirements.txt", copy_sources(tmp_path / "sources")], check=True
    )
    there = {path.name for path in site_packages(python).iterdir()}
    assert not there & {"apache_beam", "pyarrow", "cykooz_resizer", "tensorflow", "torch", "grpc"}

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "", "HOME": str(tmp_path)}
        return subprocess.run(
            list(map(str, command)),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    folder, beam_tfr = converted_photos(), python.parent / "beam-tfr"
    for command in (
        [beam_tfr, "inspect", folder, "--contact_sheet", "sheet.png"],
        [python, "-c", READ, folder],
    ):
        done = run(*command)
        assert done.returncode == 0, done.stderr
    refused = run(beam_tfr, *CONVERT)
    assert (refused.returncode, refused.stderr) == (2, NEEDS.format("apache_beam"))
    refused = run(beam_tfr, "verify", folder)
    needs = "beam-tfr verify: contents need pyarrow: pip install 'beam_tfr[contents]'\n"
    assert (refused.returncode, refused.stderr) == (2, needs)
