"""Versions of the codecs: those of the workers, compared where bytes are made."""

from __future__ import annotations

import importlib.metadata
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import images
from beam_tfr.output import codec_versions
from beam_tfr.schema.errors import RunError
from tests.conftest import Run, finished_shards

Command = Callable[..., Run]


def other_version(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    versions = {**images.codec_versions(), name: "99"}
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
    assert f"codecs.pillow: {images.codec_versions()['pillow']} there, 99 now" in refused.err
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
    assert "a worker has other codecs than the worker that began this dataset: pillow " in run.err
    assert (
        f"pillow 99 instead of {version}" in run.err or f"pillow {version} instead of 99" in run.err
    )
    assert not (tmp_path / "out" / "manifest.json").exists()
