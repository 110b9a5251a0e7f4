"""The documentation: its links lead somewhere, its lists are complete, its examples run."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image

from beam_tfr import reader
from beam_tfr.images.formats import FORMATS
from beam_tfr.options import ConvertOptions
from beam_tfr.options.run import UpdateOptions
from beam_tfr.schema.dataset import ADJUSTMENTS, REJECT_REASONS
from beam_tfr.schema.encodings import FEATURES, LABEL_FEATURES
from beam_tfr.schema.extensions import EXTENSIONS
from beam_tfr.schema.feature_names import RAW, SOURCE_DAMAGED
from beam_tfr.version import __version__
from tests.conftest import Run
from tests.converted import converted_sample
from tests.pages import DOCS, ROOT, blocks

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "SECURITY.md",
    *sorted(DOCS.glob("*.md")),
]
PAGES += [ROOT / "templates" / "README.md", ROOT / "benchmarks" / "README.md"]


def first_cells(page: Path) -> list[str]:
    """What stands as code in the first column of a page's tables."""
    rows = re.findall(r"^\| (`.+?) \|", page.read_text(), re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(.+?)`", row)]


def anchors(page: Path) -> Iterator[str]:
    """Of a page's headings, as GitHub makes them."""
    for heading in re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE
    ):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_pages_has_no_syntax_errors(page: Path) -> None:
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        ast.parse(code)


def test_the_readme_leads_to_every_page() -> None:
    assert not [
        page.name for page in DOCS.glob("*.md") if f"(docs/{page.name})" not in PAGES[0].read_text()
    ]


def test_a_release_describes_itself_with_links_into_its_repository(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyPI shows README without the files beside it."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/beam_tfr")
    given: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    text, repository = given["long_description"], "https://github.com/someone/beam_tfr"
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert f"]({repository}/raw/v{__version__}/docs/dataset.jpg)" in text
    assert f"[converting]({repository}/blob/v{__version__}/docs/converting.md)" in text
    assert given["project_urls"] == {"Source": repository}


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_page_of_options_is_that_of_the_table() -> None:
    make = runpy.run_path(str(DOCS / "make_options.py"))
    assert (DOCS / "options.md").read_text() == make["page"](), (
        "python docs/make_options.py writes it again"
    )


def test_every_reason_and_adjustment_is_explained() -> None:
    listed = first_cells(DOCS / "rejects.md")
    assert sorted(listed) == sorted(
        ["key", "stage", "reason", "detail", *REJECT_REASONS, *ADJUSTMENTS]
    )


def test_every_format_is_in_the_table_of_images() -> None:
    """Each format has a row in docs/images.md.

    To fix it, add the row, and the name of the format to README's `formats` row.
    """
    assert EXTENSIONS.keys() == FORMATS.keys()
    text = (DOCS / "images.md").read_text()
    rows = re.findall(r"^\| ([\w ]+) \| (`\w+`(?:, `\w+`)*) \|", text, re.MULTILINE)
    assert {tuple(re.findall(r"\w+", extensions)) for _, extensions in rows} == {
        *EXTENSIONS.values()
    }
    (readme,) = re.findall(r"^\| `formats` .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [name for name, _ in rows if not re.search(rf"\b{name}\b", readme)] == [
        "JPEG 2000",
        "JPEG XL",
    ]  # not supported


def test_every_feature_and_field_of_a_dataset_is_explained() -> None:
    fields = json.loads((ROOT / "beam_tfr" / "dataset" / "manifest.schema.json").read_text())[
        "properties"
    ]
    statistics = fields["statistics"]["properties"]
    of_boxes = statistics["boxes"]["properties"]
    of_masks = statistics["masks"]["properties"]
    expected = [*FEATURES, *LABEL_FEATURES, SOURCE_DAMAGED, *fields, *of_boxes, *of_masks]
    assert sorted(first_cells(DOCS / "dataset.md")) == sorted(expected)
    assert f"`{RAW}`" in (DOCS / "dataset.md").read_text()


def test_every_argument_of_load_is_explained() -> None:
    page = (DOCS / "reader.md").read_text()
    missing = [
        name
        for name in inspect.signature(reader.load).parameters
        if not re.search(rf"`{name}`", page)
    ]
    assert missing == ["path"]
    assert [name for name in reader.__all__ if f"`{name}(" not in page] == []


def test_the_messages_of_troubleshooting_are_those_of_the_code() -> None:
    texts = []
    for path in (ROOT / "beam_tfr").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                ]
                texts.append("".join(map(str, parts)))
    for message in first_cells(DOCS / "troubleshooting.md"):
        pieces = [piece.strip(" :") for piece in re.split("…|--[a-z_]+", message)]
        assert any(all(piece in text for piece in pieces) for text in texts), message


def test_the_conversion_of_the_readme(
    tmp_path: Path, beam_tfr: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    output = str(tmp_path / "clothing")
    readme = PAGES[0].read_text().replace("/tmp/clothing", output)
    ((command, printed),) = re.findall(
        r"^```sh\nbeam-tfr (.+)\n```\n\n```\n((?:.*\n)+?)```$", readme, re.MULTILINE
    )
    run = beam_tfr(*shlex.split(command))
    shown = [line for line in printed.splitlines() if line.strip() != "…"]
    assert (run.code, [line for line in shown if line not in run.out.splitlines()]) == (0, [])


@pytest.mark.slow
def test_the_training_of_the_readme() -> None:
    readme = PAGES[0].read_text().replace("/tmp/clothing", str(converted_sample()))
    (block,) = re.findall(r"^```python\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(re.sub("epochs=20", "epochs=2", block), names)
    images, labels = next(iter(names["train"]))
    assert (images.shape, labels.shape) == ((32, 224, 224, 3), (32,))
    model = names["model"]
    assert (len(model.history.history["val_accuracy"]), int(model.optimizer.iterations)) == (
        2,
        2 * len(names["train"]),
    )


@pytest.mark.slow
def test_the_pictures_can_be_drawn_again(tmp_path: Path) -> None:
    make = runpy.run_path(str(DOCS / "make_picture.py"))
    make["main"](str(tmp_path))
    most = {"dataset": 120_000, "resizing": 60_000, "boxes": 60_000, "masks": 60_000}
    for name, most_bytes in most.items():
        picture = DOCS / f"{name}.jpg"
        assert picture.stat().st_size < most_bytes
        with Image.open(picture) as kept, Image.open(tmp_path / f"{name}.jpg") as drawn:
            assert drawn.size == kept.size


def test_a_step_of_your_own(photos: Path, tmp_path: Path) -> None:
    with Image.open(next(photos.glob("train/hat/*.jpg"))) as photo:
        photo.resize((48, 63)).save(photos / "train" / "hat" / "small.jpg")
    block, *_ = blocks(DOCS / "pipeline.md", "python")
    exec(
        block.replace("photos/**", f"{photos}/train/**").replace(
            "/data/large", f"{tmp_path}/dataset"
        ),
        {},
    )
    (line,) = (tmp_path / "dataset" / "rejects.jsonl").read_text().splitlines()
    reject = json.loads(line)
    assert (reject["key"], reject["stage"], reject["detail"]) == (
        "hat/small.jpg",
        "NoThumbnails",
        "a thumbnail",
    )
    assert reader.open(tmp_path / "dataset").counts["written"] == 12


def test_a_step_that_changes_pixels(photos: Path, tmp_path: Path) -> None:
    _, block, _ = blocks(DOCS / "pipeline.md", "python")
    gray = Image.new("L", (60, 60), 100)
    gray.paste(150, (0, 0, 30, 60))
    for photo in photos.glob("train/*/*.jpg"):
        gray.save(photo, quality=95)
    exec(
        block.replace("photos/**", f"{photos}/train/**").replace("/data/", f"{tmp_path}/"),
        {"__name__": "example"},
    )
    statistics = reader.open(tmp_path / "clear").statistics
    assert min(statistics["channel_std"]) > 100  # black and white now


def test_steps_of_your_own_in_a_larger_pipeline(photos: Path, tmp_path: Path) -> None:
    """The model rejects what is dark; manifest and rejects go on into other steps."""
    for name in ("dark", "darker"):
        Image.new("RGB", (60, 60), (20, 20, 20)).save(photos / "train" / "hat" / f"{name}.jpg")
    *_, block = blocks(DOCS / "pipeline.md", "python")
    exec(
        block.replace("photos/**", f"{photos}/train/**").replace("/data/", f"{tmp_path}/"),
        {"__name__": "example"},
    )
    made = reader.open(tmp_path / "bright")
    assert made.counts == {**made.counts, "matched": 14, "written": 12, "rejected": {"left-out": 2}}
    written = {
        path.name.partition("-")[0]: path.read_text() for path in tmp_path.glob("*-00000-of-00001")
    }
    assert written["digest"] == f"{made.dataset_digest}\n"
    assert sorted(written["rejected"].split()) == ["hat/dark.jpg", "hat/darker.jpg"]


def test_one_image_in_a_notebook(sample: Path) -> None:
    (block,) = blocks(DOCS / "images.md", "python")
    photo = next(sample.glob("train/hat/*.jpg"))
    names: dict[str, Any] = {}
    exec(block.replace("photo.heic", str(photo)), names)
    assert (names["image"].height, names["image"].width) == (224, 224)


def test_the_script_for_panoptic_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = [block for block in blocks(DOCS / "objects.md", "python") if "panoptic" in block]
    monkeypatch.chdir(tmp_path)
    segments = [{"id": 70_000, "category_id": 184}, {"id": 258, "category_id": 1}]
    annotation = {"image_id": 1, "file_name": "1.png", "segments_info": segments}
    Path("panoptic_val2017.json").write_text(json.dumps({"annotations": [annotation]}))
    Path("panoptic_val2017").mkdir()
    image = Image.new("RGB", (3, 1))
    image.putdata([(112, 17, 1), (2, 1, 0), (0, 0, 0)])
    image.save("panoptic_val2017/1.png")
    exec(script, {})
    with Image.open("semantic_val2017/1.png") as mask:
        assert mask.mode == "L"
        assert [*mask.tobytes()] == [184, 1, 255]


@pytest.mark.slow
def test_the_python_of_the_recipes(
    sample: Path, tmp_path: Path, beam_tfr: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    prices, shares = blocks(DOCS / "recipes.md", "python")
    table = tmp_path / "prices.csv"
    rows = [f"{photo},{photo.stat().st_size / 1000}" for photo in sample.glob("test/hat/*.jpg")]
    table.write_text("\n".join(["path,price", *rows]))
    flags = ["--uri_column", "path", "--feature_columns", "price:float"]
    assert beam_tfr("convert", "--table", table, *flags, "--output", tmp_path / "d").code == 0
    names: dict[str, Any] = {}
    exec(prices.replace("/data/prices", f"{tmp_path}/d"), names)
    images, targets = next(iter(names["train"]))
    assert (images.shape, targets.dtype.name) == ((2, 224, 224, 3), "float32")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "8")
    exec(shares.replace("/tmp/clothes", str(converted_sample())), names)
    assert names["labels"].shape == (8,)


@pytest.mark.slow
def test_the_notebook_of_the_first_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples" / "first_hour.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert (names["dataset"].manifest.counts["written"], names["images"].shape) == (
        130,
        (18, 224, 224, 3),
    )
    assert Path("first_hour", "report.html").read_text() == names["page"].html
    assert "130" in names["page"]._repr_html_()
    assert {*capsys.readouterr().out.strip().split(", ")} <= {*names["train"].class_names}


def test_arrays_are_read_as_in_the_docs(tmp_path: Path, beam_tfr: Callable[..., Run]) -> None:
    *_, block = blocks(DOCS / "rows.md", "python")
    (tmp_path / "npy").mkdir()
    for number in range(3):
        np.save(tmp_path / "npy" / f"{number}.npy", np.full((2, number), number, np.float32))
    flags = ["--layout", "*", "--encoding", "array", "--output", tmp_path / "arrays"]
    assert beam_tfr("convert", "--input", f"{tmp_path}/npy/*.npy", *flags).code == 0
    names: dict[str, Any] = {}
    exec(block.replace("/data/arrays", f"{tmp_path}/arrays"), names)
    assert sorted(array.numpy().shape for array in names["arrays"]) == [(2, 0), (2, 1), (2, 2)]


STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
echo '"name"'
"""


def test_the_commands_of_the_first_cloud_run_are_those_of_a_shell(tmp_path: Path) -> None:
    """With programs in place of gcloud and ours that only note how they are called."""
    for name in ("gcloud", "curl", "cp", "beam-tfr"):
        (tmp_path / name).write_text(STUB)
        (tmp_path / name).chmod(0o755)
    named = {name: name.lower() for name in ("PROJECT", "REGION", "BUCKET", "IMAGE", "WORKER")}
    environment = {
        **named,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
    }
    shell = "".join(blocks(DOCS / "first-cloud-run.md", "sh")).replace("1111", "2")
    subprocess.run(
        ["bash", "-eu", "-c", shell], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    called = (tmp_path / "log").read_text().splitlines()
    jobs = [
        line
        for line in called
        if line.startswith("beam-tfr convert") and "--runner=DataflowRunner" in line
    ]
    assert len(jobs) == 4
    assert all(
        "--temp_location=gs://bucket/tmp --service_account_email=worker" in line for line in jobs
    )


def test_flags_of_convert_and_beam_exist() -> None:
    known = {
        field.name
        for options in (ConvertOptions, UpdateOptions)
        for field in dataclasses.fields(options)
    }
    for path in (ROOT / "beam_tfr" / "commands").glob("*.py"):
        known |= set(re.findall(r'"--([a-z0-9_]+)"', path.read_text()))
    known |= PipelineOptions([]).get_all_options().keys() | {
        "no_use_public_ips",
        "help",
        "service_port",
        "slow",
        "sort",
    }
    for page in PAGES[:1] + sorted(DOCS.glob("*.md")):
        of_others = (
            "pip (?:install|wheel)|python -m (?:benchmarks|tests)|shtab |gcloud |"
            "gcp-storage-emulator |torchrun "
        )
        text = re.sub(f"^.*({of_others}).*$", "", page.read_text(), flags=re.MULTILINE)
        unknown = [flag for flag in re.findall(r"--([a-z][a-z0-9_]+)", text) if flag not in known]
        assert not unknown, page.name
