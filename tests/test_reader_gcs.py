"""A conversion from gs:// to gs://, checked and read there.

It is the same as on the disk, byte by byte, batch by batch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import storage
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.schema.errors import DataError
from beam_tfr.verification import verify
from tests.conftest import SAMPLE, Run, files_of
from tests.converted import converted_photos
from tests.fake_gcs import FakeGcs
from tests.tls_proxy import tls_proxy

pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'beam_tfr[reader]'")
from beam_tfr import reader


def test_what_tensorflow_cannot_read_is_told(
    fake: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emulator, which TensorFlow does not know, or objects that it may not read."""
    fake.put_folder(converted_photos(), "d")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HTTPS_PROXY", "http://nowhere.invalid:9")
    with pytest.raises(
        DataError, match=r"TensorFlow.*cannot read gs://b/d/manifest\.json"
    ) as caught:
        reader.load("gs://b/d", split="train")
    assert "STORAGE_EMULATOR_HOST" in str(caught.value)


READ = """
import hashlib
from beam_tfr import reader
for batch in reader.load(folder, split="train", batch_size=16, shuffle=True, seed=3, repeat=2):
    print(hashlib.sha256(batch[0].numpy().tobytes()).hexdigest(), batch[1].numpy().tolist())
"""


def read_in_a_process(folder: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-c", f"folder = {folder!r}\n{READ}"]
    run = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


@pytest.mark.slow
def test_converted_checked_and_read_on_gs(
    gcs: str,
    gcs_emulator: str,
    tmp_path: Path,
    beam_tfr: Callable[..., Run],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for path in sorted(SAMPLE.glob("*/hat/*.jpg")):
        target = f"{gcs}/photos/{path.relative_to(SAMPLE)}"
        storage.write_bytes(target, path.read_bytes(), scratch="", replace=False)
    options = ["--layout", "{split}/{label}/*", "--num_shards", "3", "--name", "d"]
    for source, output in ((f"{SAMPLE}", f"{tmp_path}/out"), (f"{gcs}/photos", f"{gcs}/out")):
        run = beam_tfr("convert", "--input", f"{source}/*/hat/*.jpg", "--output", output, *options)
        assert run.code == 0
    local = files_of(tmp_path / "out")
    names = [
        *storage.list_folder(f"{gcs}/out"),
        *(f"contents/{x}" for x in storage.list_folder(f"{gcs}/out/contents")),
    ]
    assert {name: storage.read_bytes(f"{gcs}/out/{name}") for name in names} == local
    assert (
        read_manifest(f"{gcs}/out").dataset_digest
        == read_manifest(f"{tmp_path}/out").dataset_digest
    )
    assert verify(f"{gcs}/out").ok
    with tls_proxy(gcs_emulator, tmp_path) as environment:
        there = read_in_a_process(f"{gcs}/out", environment)
    capsys.readouterr()
    exec(READ, {"folder": f"{tmp_path}/out"})
    assert there == capsys.readouterr().out
