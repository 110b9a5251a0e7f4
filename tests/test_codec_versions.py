"""Versions of the codecs: those of the workers, compared where bytes are made."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pillow_heif
import pytest

from beam_tfr import images
from beam_tfr.images import formats
from beam_tfr.output import codec_versions
from beam_tfr.schema.errors import RunError
from tests.conftest import Run, files_of, finished_shards

Command = Callable[..., Run]


def other_version(monkeypatch: pytest.MonkeyPatch, name: str, version: str = "99") -> None:
    versions = {**images.codec_versions(), name: version}
    monkeypatch.setattr(images, "codec_versions", lambda: versions)


def test_only_what_can_change_a_byte_counts() -> None:
    libraries = images.codec_versions()
    with_zlib = libraries | {"zlib": zlib.ZLIB_RUNTIME_VERSION}
    for (encoding, compression, level), expected in {
        ("jpeg", "gzip", "auto"): libraries,  # stored blocks
        ("keep", "none", "auto"): libraries,
        ("jpeg", "gzip", 1): with_zlib,
        ("raw", "gzip", "auto"): with_zlib,
        ("bytes", "gzip", 0): {},
        ("row", "gzip", "auto"): {"zlib": zlib.ZLIB_RUNTIME_VERSION},
    }.items():
        options = {"encoding": encoding, "compression": compression, "gzip_level": level}
        assert codec_versions.used_versions(options) == expected, options


def lack_heif(name: str, really: Callable[[str], str] = importlib.metadata.version) -> str:
    if name == "pillow-heif":
        raise importlib.metadata.PackageNotFoundError(name)
    return really(name)


def test_a_library_that_only_one_worker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = json.dumps(
        codec_versions.used_versions(
            {"encoding": "jpeg", "compression": "none", "gzip_level": "auto"}
        )
    )
    codec_versions.check_versions(plan)
    monkeypatch.setattr(importlib.metadata, "version", lack_heif)
    images.codec_versions.cache_clear()
    codec_versions.check_versions.cache_clear()
    with pytest.raises(RunError, match=r"pillow-heif none instead of \d"):
        codec_versions.check_versions(plan)
    images.codec_versions.cache_clear()


@pytest.mark.slow
def test_a_resume_needs_the_same_codecs_and_no_more(
    photos: Path, tmp_path: Path, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of an interrupted run stay with another zlib, not with another Pillow.

    zlib only inflates here.
    """
    for name in ("broken.jpg", "broken too.jpg"):
        (photos / "train" / "hat" / name).write_bytes(b"x")
    command = (
        "convert",
        "--input",
        f"{photos}/**/*.jpg",
        "--output",
        tmp_path / "out",
        "--layout={label}/*",
    )
    assert beam_tfr(*command, "--max_rejects=1").code == 1
    with monkeypatch.context() as patch:
        other_version(patch, "pillow")
        refused = beam_tfr(*command, "--max_rejects=2")
    assert refused.code == 2
    assert f"codecs.pillow: {images.codec_versions()['pillow']} before, 99 now" in refused.err
    made = {
        name: path.stat().st_mtime_ns for name, path in finished_shards(tmp_path / "out").items()
    }
    assert made
    monkeypatch.setattr(zlib, "ZLIB_RUNTIME_VERSION", "99")
    assert beam_tfr(*command, "--max_rejects=2").code == 0
    assert made == {
        name: path.stat().st_mtime_ns for name, path in finished_shards(tmp_path / "out").items()
    }


ODD_ONE = """
import importlib.metadata, os
try:
    os.close(os.open({flag!r}, os.O_CREAT | os.O_EXCL))
except FileExistsError:
    pass
else:
    really = importlib.metadata.version
    importlib.metadata.version = lambda name: "99" if name == "pillow" else really(name)
"""


@pytest.mark.slow
def test_a_worker_with_other_codecs_fails_loudly(
    photos: Path, tmp_path: Path, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(ODD_ONE.format(flag=f"{tmp_path}/flag"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("beam_tfr.engine.beam_internals.FORKS", False)  # those have the same codecs
    run = beam_tfr(
        *(
            "convert",
            "--input",
            f"{photos}/**/*.jpg",
            "--output",
            tmp_path / "out",
            "--num_shards=8",
            "--layout=*",
        ),
        *("--direct_running_mode=multi_processing", "--direct_num_workers=2"),
    )
    version = images.codec_versions()["pillow"]
    assert run.code == 1
    assert (
        "a worker's codec versions differ from those of the worker that began this dataset: pillow "
        in run.err
    )
    assert (
        f"pillow 99 instead of {version}" in run.err or f"pillow {version} instead of 99" in run.err
    )
    assert not (tmp_path / "out" / "manifest.json").exists()


@contextlib.contextmanager
def without_heif() -> Iterator[None]:
    """As if pillow-heif were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        other_version(patch, "pillow-heif", "none")
        patch.setitem(sys.modules, "pillow_heif", None)
        yield


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """HEIC is decoded in this process, where pillow-heif may be hidden."""
    heic = formats.FORMATS["heic"]._replace(needs_guard=False)
    monkeypatch.setitem(formats.FORMATS, "heic", heic)


@pytest.fixture
def photos_and_heic(photos: Path) -> Path:
    """The photos, and a HEIC."""
    file = pillow_heif.from_bytes("RGB", (64, 48), bytes([200, 90, 30] * 64 * 48))
    file.save(photos / "train" / "hat" / "new.heic")
    return photos


def convert(beam_tfr: Command, photos: Path, output: Path, *flags: str) -> Run:
    inputs = ["--input", f"{photos}/**/*.*", "--layout={label}/*", "--num_shards=3"]
    return beam_tfr("convert", *inputs, "--output", output, *flags)


@pytest.mark.usefixtures("unguarded")
def test_a_codec_that_was_absent_changes_no_finished_shard(
    photos_and_heic: Path, tmp_path: Path, beam_tfr: Command
) -> None:
    photos = photos_and_heic
    output = tmp_path / "out"
    with without_heif():
        run = convert(beam_tfr, photos, output, "--max_rejects=0")
        assert run.code == 1
        assert "pip install 'beam_tfr[formats]'" in run.err
    before = {name: path.stat().st_mtime_ns for name, path in finished_shards(output).items()}
    assert len(before) == 3
    run = convert(beam_tfr, photos, output, "--max_rejects=0")
    assert run.code == 0, run.err
    after = {name: path.stat().st_mtime_ns for name, path in finished_shards(output).items()}
    assert len(before.items() & after.items()) == 2  # all but that of the HEIC
    fresh = convert(beam_tfr, photos, tmp_path / "fresh", "--name", "out")
    assert fresh.code == 0
    assert files_of(output) == files_of(tmp_path / "fresh")


@pytest.mark.usefixtures("unguarded")
def test_an_update_tries_rejects_again_for_which_there_is_a_codec_now(
    photos_and_heic: Path, tmp_path: Path, beam_tfr: Command
) -> None:
    photos = photos_and_heic
    output = tmp_path / "out"
    with without_heif():
        assert convert(beam_tfr, photos, output, "--max_rejects=1").code == 0
        assert "was not installed" not in convert(beam_tfr, photos, output).out
    run = convert(beam_tfr, photos, output)
    assert run.code == 0
    assert "pillow-heif was not installed when this dataset was made, but is now" in run.out
    run = beam_tfr("update", output, "--input", f"{photos}/**/*.*")
    assert run.code == 0, run.err
    assert "update:  1 added" in run.out
    fresh = convert(beam_tfr, photos, tmp_path / "fresh", "--name", "out")
    assert fresh.code == 0
    updated = files_of(output)
    assert updated.pop("history.jsonl")
    assert updated == files_of(tmp_path / "fresh")


@pytest.mark.usefixtures("unguarded")
def test_a_codec_that_was_there_and_has_another_version_is_another_recipe(
    photos_and_heic: Path, tmp_path: Path, beam_tfr: Command
) -> None:
    photos = photos_and_heic
    (photos / "train" / "hat" / "broken.jpg").write_bytes(b"x")
    assert convert(beam_tfr, photos, tmp_path / "out", "--max_rejects=0").code == 1
    with without_heif():
        run = convert(beam_tfr, photos, tmp_path / "out", "--max_rejects=1")
    assert run.code == 2
    assert "codecs.pillow-heif" in run.err
