"""`verify --sources` with the tables that a dataset was made from."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from beam_tfr.records.tfrecords import frame
from tests.archives import tarred
from tests.conftest import Run
from tests.image_tables import FLAGS, JPEG, example, photos, write

Convert = Callable[..., Run]
Photos = Sequence[tuple[str, str, bytes]]


def write_parquet(folder: Path, of: Photos) -> list[str]:
    table = write(
        folder / "p.parquet", [data for _, _, data in of], [0] * len(of), row_group_size=3
    )
    return [str(table), *FLAGS]


def write_tfrecords(folder: Path, of: Photos) -> list[str]:
    (folder / "p.tfrecord").write_bytes(b"".join(frame(example(*photo)) for photo in of))
    return [str(folder / "p.tfrecord")]


def write_tar(folder: Path, of: Photos) -> list[str]:
    files = {f"{name}.jpg": data for name, _, data in of} | {
        f"{name}.cls": b"hat" for name, _, _ in of
    }
    (folder / "p.tar").write_bytes(tarred(dict(sorted(files.items()))))
    return [f"{folder}/*.tar"]


def write_csv(folder: Path, of: Photos, *, root: str = "") -> list[str]:
    shutil.rmtree(folder / "files", ignore_errors=True)
    (folder / "files").mkdir()
    for name, _, data in of:
        (folder / "files" / f"{name}.jpg").write_bytes(data)
    lines = [f"{'' if root else 'files/'}{name}.jpg,{label}" for name, label, _ in of]
    (folder / "p.csv").write_text("\n".join(["path,class", *lines]) + "\n")
    return [
        str(folder / "p.csv"),
        "--uri_column",
        "path",
        "--label_column",
        "class",
        *root.format(folder).split(),
    ]


def write_csv_with_root(folder: Path, of: Photos) -> list[str]:
    return write_csv(folder, of, root="--image_root {}/files")


def write_dataset(folder: Path, of: Photos) -> list[str]:
    from beam_tfr import convert

    write_csv(folder, of)
    options = {"encoding": "keep", "resize": "none", "num_shards": 2, "progress": False}
    convert(input=folder / "files", layout="*", output=folder / "first", overwrite=True, **options)
    return [str(folder / "first" / "manifest.json")]


FORMS: list[Callable[[Path, Photos], list[str]]] = [
    write_parquet,
    write_tfrecords,
    write_tar,
    write_csv,
    write_csv_with_root,
    write_dataset,
]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_changed_are_gone_or_new_are_named(
    form: Callable[[Path, Photos], list[str]], beam_tfr: Convert, tmp_path: Path
) -> None:
    mine = sorted(photos())[:8]
    flags = form(tmp_path, mine)
    assert (
        beam_tfr(
            "convert", "--table", *flags, "--image_size", 16, "--output", tmp_path / "out"
        ).code
        == 0
    )
    sources = [flags[0], f"{tmp_path}/files"] if "--image_root" in flags else flags[:1]

    def verified() -> tuple[int, list[str], str]:
        run = beam_tfr("verify", tmp_path / "out", "--sources", *sources)
        return (
            run.code,
            [line.partition(": ")[2] or line for line in run.err.splitlines()],
            run.out.splitlines()[1],
        )

    assert verified() == (0, [], "sources: 8 compared, 0 changed, 0 gone, 0 new, 0 unreadable")
    last, more = mine[-1], ("zz", "hat", JPEG)
    key = "00000007" if form in (write_parquet, write_tfrecords) else f"{last[0]}.jpg"
    form(tmp_path, [*mine[:-1], (*last[:2], mine[0][2])])
    found = verified()
    assert (found[0], found[2]) == (
        1,
        "sources: 8 compared, 1 changed, 0 gone, 0 new, 0 unreadable",
    )
    assert found[1][0].endswith(f"{key}' has changed")
    form(tmp_path, mine[:-1])
    found = verified()
    assert (found[0], found[2]) == (
        1,
        "sources: 8 compared, 0 changed, 1 gone, 0 new, 0 unreadable",
    )
    assert found[1][0].endswith(f"{key}' is gone")
    form(tmp_path, [*mine, more])
    run = beam_tfr("verify", tmp_path / "out", "--sources", *sources, "--json")
    assert (run.code, run.json["kinds"]) == (1, {"source-new": 1})
    (problem,) = run.json["problems"]
    assert problem["message"] == "is neither a record nor a reject"
    form(tmp_path, mine)
    assert verified()[0] == 0


def test_rejects_and_wrong_calls(beam_tfr: Convert, tmp_path: Path) -> None:
    mine = sorted(photos())[:4]
    flags = write_csv(tmp_path, mine)
    table = Path(flags[0])
    table.write_text(table.read_text() + ",hat\nfiles/none.jpg,hat\n")
    call = [
        "convert",
        "--table",
        *flags,
        "--image_size",
        16,
        "--output",
        tmp_path / "out",
        "--max_rejects",
        2,
    ]
    assert beam_tfr(*call).code == 0
    verify = ["verify", tmp_path / "out", "--sources"]
    assert beam_tfr(*verify, table).code == 0
    (tmp_path / "files" / f"{mine[0][0]}.jpg").unlink()
    run = beam_tfr(*verify, table, "--json")
    assert run.json["kinds"] == {"source-gone": 1}
    whole = table.read_text()
    # its file is still there
    table.write_text(whole.replace(f"files/{mine[1][0]}.jpg,{mine[1][1]}\n", ""))
    kinds = beam_tfr(*verify, table, "--json").json["kinds"]
    assert kinds == {
        "source-gone": 2,
        "source-new": 1,
    }  # the row without a path has another number, as its reject
    table.write_text(whole.replace("\n", "\nx\n", 1))
    for sources, problem in (
        (
            [table],
            f"--sources {table}, row 1 after the header: has 1 cell, but the header has 2; "
            "is a quote missing?",
        ),
        (
            [tmp_path / "files"],
            "the dataset was made from tables: specify these, and the folder passed as",
        ),
        ([tmp_path / "no.csv"], f"--sources {tmp_path}/no.csv: matches no file"),
        ([table, "--exclude", "*.gif"], "--exclude and --sources cannot be combined"),
    ):
        run = beam_tfr(*verify, *sources)
        assert (run.code, problem in run.err) == (1 + (sources != [table]), True), run.err


def test_a_damaged_table_is_named(beam_tfr: Convert, tmp_path: Path) -> None:
    (table,) = write_tfrecords(tmp_path, sorted(photos())[:3])
    assert (
        beam_tfr("convert", "--table", table, "--output", tmp_path / "out", "--image_size", 16).code
        == 0
    )
    Path(table).write_bytes(Path(table).read_bytes()[:-9])
    run = beam_tfr("verify", tmp_path / "out", "--sources", table)
    assert (run.code, run.out) == (1, "")
    assert run.err.startswith(
        f"beam-tfr verify: a table of --sources is damaged, so nothing was compared: "
        f"--sources {table}, row 3: "
    )
