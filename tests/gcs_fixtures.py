"""The fault-injecting server of `fake_gcs` as fixtures."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterator

import pytest
from google.api_core.retry import retry_base, retry_unary

from beam_tfr import storage
from beam_tfr.storage.gcs_client import FIRST_WAIT_S, LONGEST_WAIT_S
from tests.conftest import SAMPLE, Run
from tests.fake_gcs import FakeGcs


@pytest.fixture(scope="session")
def fake_server() -> Iterator[FakeGcs]:
    server = FakeGcs()
    yield server
    server.close()


@pytest.fixture
def fake(fake_server: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    """Makes gs:// a server that fails to order, with the empty bucket `b`.

    Waits between tries are short.
    """
    fake_server.clear()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_server.address)
    monkeypatch.setattr(storage.gcs_client, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(storage.gcs_client, "LONGEST_WAIT_S", 0.1)
    storage.gcs_client.make_client.cache_clear()
    yield fake_server
    storage.gcs_client.make_client.cache_clear()


class Clock:
    """A clock that only sleeping moves, and at once."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(fake: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of retries: their waits are as long as in production, and take no time."""
    clock = Clock()
    monkeypatch.setattr(storage.gcs_client, "FIRST_WAIT_S", FIRST_WAIT_S)
    monkeypatch.setattr(storage.gcs_client, "LONGEST_WAIT_S", LONGEST_WAIT_S)
    monkeypatch.setattr(storage.waits, "_served", clock.now)
    monkeypatch.setattr(storage.waits, "_counts", collections.Counter())
    for module in (retry_base, retry_unary, storage.gcs_client, storage.waits):
        monkeypatch.setattr(module, "time", clock)
    return clock


def objects_below(fake: FakeGcs, folder: str) -> dict[str, bytes]:
    return {
        name[len(folder) + 1 :]: fake.get(name)
        for name in fake.names()
        if name.startswith(f"{folder}/") and "/.sources/" not in name
    }


Command = Callable[..., Run]
PHOTO_NAMES = [f"photos/{label}/{i}.jpg" for label in ("hat", "shoes") for i in range(4)]


@pytest.fixture
def bucket(fake: FakeGcs) -> FakeGcs:
    for name, path in zip(PHOTO_NAMES, sorted(SAMPLE.rglob("*.jpg")), strict=False):
        fake.put(name, path.read_bytes())
    fake.take_log()
    return fake


def convert(
    beam_tfr: Command, *options: str, source: tuple[str, ...] = ("--input", "gs://b/photos/**")
) -> Run:
    return beam_tfr(
        "convert", *source, "--output", "gs://b/out", "--num_shards", "2", "--json", *options
    )
