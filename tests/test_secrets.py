"""Secrets that lie around where a conversion is started.

They are planted here, and looked for wherever it writes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr.console.terminal import without_secrets
from beam_tfr.dataflow import staging
from tests.conftest import Run, files_of
from tests.dataflow_fixtures import pickles_of, submit
from tests.fake_dataflow import FakeDataflow

Command = Callable[..., Run]
SECRET = "hunter2"
SIGNED = f"https://user:{SECRET}@host/x.jpg?X-Goog-Credential=a&X-Goog-Signature={SECRET}"


@pytest.fixture
def planted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In a file of credentials and in variables; all that is logged is kept."""
    key = tmp_path / "key.json"
    key.write_text(
        json.dumps(
            {"type": "service_account", "private_key": SECRET, "client_email": f"{SECRET}@p"}
        )
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"https://user:{SECRET}@host/simple")
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    caplog.set_level(logging.DEBUG)


@pytest.mark.slow
@pytest.mark.usefixtures("planted")
def test_no_secret_is_in_a_dataset_or_a_message(
    photos: Path, tmp_path: Path, beam_tfr: Command, caplog: pytest.LogCaptureFixture
) -> None:
    table, output = tmp_path / "t.csv", tmp_path / "out"
    rows = [f"{path},{path.parent.name}" for path in sorted(photos.rglob("*.jpg"))]
    table.write_text("\n".join(["uri,label", *rows, f"{SIGNED},hat", ""]))
    command = (
        "convert",
        "--table",
        table,
        "--uri_column=uri",
        "--label_column=label",
        "--compression=none",
    )
    stopped = beam_tfr(*command, "--output", output, "--max_rejects=0")
    assert stopped.code == 1
    begun = b"".join(files_of(output).values())
    done = beam_tfr(*command, "--output", output, "--max_rejects=1")
    assert done.code == 0
    assert SECRET.encode() not in begun + b"".join(files_of(output).values())
    assert (
        b"https://***@host/x.jpg?X-Goog-Credential=***&X-Goog-Signature=***"
        in (output / "rejects.jsonl").read_bytes()
    )
    assert SECRET not in "".join([stopped.out, stopped.err, done.out, done.err, caplog.text])


def test_a_refused_call_shows_no_secret(beam_tfr: Command, tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_text(f"{SIGNED}\n")
    for flags in (
        ["--input", SIGNED],
        ["--input=x", "--output", SIGNED],
        ["--input_list", listed],
        ["--table", SIGNED],
    ):
        run = beam_tfr("convert", "--output", tmp_path / "out", *flags)
        assert run.code == 2
        assert "only local paths and gs:// are supported" in run.err
        assert SECRET not in run.err


@pytest.mark.slow
@pytest.mark.usefixtures("planted")
def test_no_secret_leaves_with_a_job(
    service: FakeDataflow,
    beam_tfr: Command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(staging, "codec_pins", str)
    run = submit(beam_tfr, service, "--no_wait", "--sdk_container_image=")
    assert run.code == 0
    written = [service.get(name) for name in service.names() if not name.startswith("photos/")]
    texts = [json.dumps(service.jobs()).encode(), *written, *pickles_of(service.pipeline())]
    assert len(texts) > 10
    assert not [text for text in texts if SECRET.encode() in text]
    assert SECRET not in run.out + run.err + caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "https://h/x.jpg?a=1&access_token={}&b=2",
        "https://h/x.jpg#access_token={}",
        "https://h/x.jpg?apiKey={}",
        "https://h/x.jpg?api_key={}&amp;client_secret={}",
        "gs://b/x.jpg?GoogleAccessId={}&Expires=1&Signature={}%2B{}",
        "https://a.blob.core.windows.net/x?sv=1&sig={}%3D",
        "x.jpg?X-Amz-Security-Token={}",
        "ftp://user:{}@h/x.jpg",
        "https://h/x.jpg?jwt={}",
        "https://h/x.jpg?Policy={}&size=1",
        "https://h/x.jpg;jsessionid={}",
        "https://h/x.jpg?a=1&token[]={}&%74oken={}",
    ],
)
def test_secrets_in_addresses_are_masked(url: str) -> None:
    text = without_secrets(f"'{url.replace('{}', SECRET)}' cannot be read")
    assert SECRET not in text
    assert text.endswith("' cannot be read")


def test_what_is_no_secret_stays() -> None:
    for text in (
        "gs://b/img?.jpg",
        "a@b.jpg",
        "gs://b/a@2x.jpg",
        "photos/?ey=1.jpg",
        "https://host/x?size=1",
        "photos/a?monkey=1&author=me.jpg",
    ):
        assert without_secrets(text) == text
