"""The fault-injecting server of `fake_gcs` as fixtures."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from google.api_core.retry import retry_base, retry_unary

from beam_tfr import storage
from beam_tfr.storage.gcs_client import FIRST_WAIT_S, LONGEST_WAIT_S
from tests.fake_gcs import FakeGcs


@pytest.fixture(scope="session")
def fake_server() -> Iterator[FakeGcs]:
    server = FakeGcs()
    yield server
    server.close()


@pytest.fixture
def fake(fake_server: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    """gs:// is a server that fails to order, with the empty bucket `b`; waits between tries are
    short."""
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
    for module in (retry_base, retry_unary, storage.gcs_client, storage.waits):
        monkeypatch.setattr(module, "time", clock)
    return clock
