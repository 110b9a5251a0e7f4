"""`beam_tfr.convert` and `beam_tfr.verify`: the commands as functions."""

from __future__ import annotations

import concurrent.futures
import io
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers

import beam_tfr
from beam_tfr import reader
from beam_tfr.console.terminal import Printable, own_stderr
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.schema.items import Reject
from tests.converted import converted_photos

LAYOUT = "{split}/{label}/*"


def test_convert_takes_values_and_text_and_returns_the_dataset(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (photos / "train" / "hat" / "<b>.jpg").write_bytes(b"")
    seen: list[Any] = []
    by_values = beam_tfr.convert(
        input=[photos / "**" / "*.jpg"],
        output=tmp_path / "out",
        layout=LAYOUT,
        image_size=(32, 96),
        num_shards={"train": 2, "test": 1},
        max_rejects=1,
        progress=seen.append,
    )
    by_text = beam_tfr.convert(
        input=f"{photos}/**/*.jpg",
        output=f"{tmp_path}/out",
        layout=LAYOUT,
        image_size="32x96",
        num_shards="train=2,test=1",
        max_rejects="1",
        classes=None,
        beam_flags=["--direct_num_workers=1"],
    )
    # of rejects
    assert not [record for record in caplog.records if record.name.startswith("beam_tfr")]
    assert (by_values.fresh, by_text.fresh) == (True, False)  # the same options: complete already
    assert by_text.digest == by_values.digest == reader.open(tmp_path / "out").dataset_digest
    assert (seen[0].num_shards, seen[-1][:5]) == (0, ("publishing", 19, 19, 3, 3))
    assert "sha256" not in repr(by_values.splits)
    assert by_values.class_names == ("hat", "shoes", "t-shirt")
    assert [*by_values.splits] == ["train", "test"]
    assert by_values.splits["train"].class_counts == {"hat": 4, "shoes": 4, "t-shirt": 4}
    (reject,) = by_values.rejects
    assert reject == Reject("train/hat/<b>.jpg", "ReadImages", "empty-file", reject.detail)
    assert str(by_values) == repr(by_values) == "\n".join(by_values.lines())
    shown = by_values._repr_html_()
    assert shown.startswith("<pre>")
    assert by_values.counts == {
        "matched": 19,
        "written": 18,
        "rejected": {"empty-file": 1},
        "adjusted": {"cropped": 18},
    }
    for line in (
        "balance: 19 matched = 18 written + 1 rejected",
        "  empty-file: 1",
        f"    train/hat/&lt;b&gt;.jpg: {reject.detail}",
        "adjusted: 18 cropped (lost more than half of their area)",
        "cropped: 74% of an image on average; `resize=pad` keeps all of it",
        f"load:    from beam_tfr.reader import load; train = load(&#x27;{tmp_path}/out&#x27;, "
        f"split=&#x27;train&#x27;)",
    ):
        assert f"\n{line}" in shown, shown
    assert "already" not in shown
    assert "already holds this complete dataset; nothing was written." in by_text._repr_html_()
    report = beam_tfr.verify(tmp_path / "out", sources=photos / "**" / "*.jpg", progress=False)
    assert report.ok
    assert report.counts["sources_read"] == 18
    first, sources, last = repr(report).splitlines()
    assert first.startswith(
        f"{tmp_path}/out: 18 records in 3 shards, {report.counts['bytes_read']:,} bytes, "
    )
    assert sources == "sources: 18 compared, 0 changed, 0 gone, 0 new, 0 unreadable"
    assert last == "OK: the dataset matches its manifest"
    shard = next((tmp_path / "out").glob("*-00000-of-00002*"))
    shard.write_bytes(shard.read_bytes()[:-9])
    assert repr(beam_tfr.verify(tmp_path / "out")).endswith(" problems")


@pytest.mark.slow
def test_calls_at_once_give_what_one_gives_and_leave_beam_as_it_was(
    photos: Path, tmp_path: Path
) -> None:
    before = (
        PipelineOptions.view_as,
        fn_runner.ProgressRequester,
        worker_handlers.DATA_BUFFER_TIME_LIMIT_MS,
    )

    def convert(number: int) -> str:
        output = tmp_path / str(number)
        return beam_tfr.convert(
            input=photos, output=output, layout=LAYOUT, image_size=32, name="d"
        ).digest

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert len({*pool.map(convert, range(3))}) == 1
    assert (
        PipelineOptions.view_as,
        fn_runner.ProgressRequester,
        worker_handlers.DATA_BUFFER_TIME_LIMIT_MS,
    ) == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"image_sise": 3},
            "`image_sise=`: unknown option; did you mean image_size?; Beam's own options go into "
            "`beam_flags=`",
        ),
        (
            {"qqq": 3},
            "`qqq=`: unknown option; docs/options.md lists all; Beam's own options go into "
            "`beam_flags=`",
        ),
        (
            {"dry_run": True},
            "`dry_run=`: unknown option; docs/options.md lists all; Beam's own options go into "
            "`beam_flags=`",
        ),
        ({"output": None}, "`output=`: must be a path"),
        (
            {"splits": "train=x"},
            "`splits=train=x`: must be NAME=FRACTION pairs separated by commas, such as train=0.8",
        ),
        ({"input": 5}, "`input=5`: must be a path or a list of paths"),
        ({"quality": 0}, "`quality=0`: must be a whole number from 1 to 100"),
        ({"beam_flags": "--project=p"}, "`beam_flags=--project=p`: must be a list"),
        (
            {"no_wait": True},
            "`no_wait=`, `template_location=` and `dry_run=` leave no dataset to return",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_call_is_a_value_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        beam_tfr.convert(**{"input": "a/*", "output": "b", **given})
    assert isinstance(caught.value, beam_tfr.UsageError)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda folder: beam_tfr.verify(None), "`folder=`: must be a path"),
        (
            lambda folder: beam_tfr.verify(folder, threads=math.nan),
            "`threads=nan`: must be a whole number",
        ),
        (
            lambda folder: beam_tfr.verify(folder, sources=3),
            "`sources=3`: must be a path or a list of paths",
        ),
        (
            lambda folder: beam_tfr.verify(folder, sources=""),
            "`sources=`: is empty; specify the `input=` that",
        ),
        (lambda folder: beam_tfr.inspect(7), "`path=7`: must be a path"),
        (lambda folder: beam_tfr.inspect(folder, where=7), "`where=7`: must be a dict such as"),
        (
            lambda folder: beam_tfr.inspect(folder).contact_sheet("8"),
            "`columns='8'`: must be a whole number",
        ),
    ],
)
def test_values_of_the_wrong_type(call: Callable[[Path], object], message: str) -> None:
    with pytest.raises(beam_tfr.UsageError) as caught:
        call(converted_photos())
    assert message in str(caught.value)


def test_values_of_many_kinds_are_the_same_options() -> None:
    text = from_values(
        {"input": "/a/*", "output": "/o", "splits": "train=0.9,test=0.1"}, ConvertOptions
    )
    values = {
        "input": (path for path in ["/a/*"]),
        "output": Path("/o"),
        "splits": {"train": 0.9, "test": 0.1},
    }
    assert from_values(values, ConvertOptions) == text
    numpy = from_values(
        {**values, "input": "/a/*", "seed": np.int64(7), "max_aspect": np.float32(2.5)},
        ConvertOptions,
    )
    assert (type(numpy.seed), type(numpy.max_aspect)) == (int, float)


def test_errors_of_inspect_are_told_in_two_frames(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file or folder") as caught:
        beam_tfr.inspect(tmp_path / "none")
    assert len(caught.traceback) == 2


@pytest.mark.parametrize("opened", [beam_tfr.verify, reader.open], ids=["verify", "open"])
def test_a_missing_folder_is_not_found(opened: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the folder does not exist") as caught:
        opened(tmp_path / "none")
    assert isinstance(caught.value, beam_tfr.DataError)
    with pytest.raises(beam_tfr.DataError) as caught:  # it is there, and empty
        opened(tmp_path)
    assert not isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("wrong", ["none", "none/**/*.jpg"])
@pytest.mark.parametrize("called", [beam_tfr.convert, beam_tfr.plan], ids=["convert", "plan"])
def test_missing_input_is_not_found_and_told_in_two_frames(
    called: Callable[..., object], wrong: str, tmp_path: Path
) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"matches no file; (there is no folder|name a file)"
    ) as caught:
        called(input=tmp_path / wrong, output=tmp_path / "out")
    assert isinstance(caught.value, beam_tfr.UsageError)
    assert len(caught.traceback) == 2
    assert caught.value.__suppress_context__


def test_every_exported_name_is_there() -> None:
    assert all(getattr(beam_tfr, name) for name in beam_tfr.__all__)
    assert {*beam_tfr.__all__} <= {*dir(beam_tfr)}
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = beam_tfr.nothing


def test_a_loaded_dataset_has_its_class_names() -> None:
    dataset = reader.load(converted_photos(), split="train", batch_size=4)
    assert dataset.class_names == ("hat", "shoes", "t-shirt")


def test_progress_goes_to_the_cell_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cell(io.StringIO):  # as ipykernel's stream: its file is the server's terminal
        def fileno(self) -> int:
            return 2

    monkeypatch.setattr(sys, "stderr", Cell())
    with own_stderr() as stream:
        assert stream is sys.stderr


def test_a_result_is_escaped_as_text_and_as_html() -> None:
    class Shown(Printable):
        def lines(self) -> Iterator[str]:
            yield from ("<i>&", "\x1b[0m")

    assert str(Shown()) == repr(Shown()) == "<i>&\n\\x1b[0m"
    assert Shown()._repr_html_() == "<pre>&lt;i&gt;&amp;\n\\x1b[0m</pre>"
