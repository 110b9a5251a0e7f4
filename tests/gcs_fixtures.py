"""The fault-injecting server of `fake_gcs` as fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beam_tfr import storage
from tests.fake_gcs import FakeGcs


@pytest.fixture(scope="session")
def fake_server() -> Iterator[FakeGcs]:
    server = FakeGcs()
    yield server
    server.close()


@pytest.fixture
def fake(fake_server: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    """gs:// is a server that fails to order, with the empty bucket `b`; waits between tries are short."""
    fake_server.clear()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_server.address)
    monkeypatch.setattr(storage.gcs_errors, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(storage.gcs_errors, "LONGEST_WAIT_S", 0.1)
    storage.gcs_client.make_client.cache_clear()
    yield fake_server
    storage.gcs_client.make_client.cache_clear()
