"""A local runner that retries as a cluster does.

Each bundle runs once in vain first, and may fail anywhere.
"""

from __future__ import annotations

import contextlib
import functools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import BundleManager

from beam_tfr import images, storage
from beam_tfr.output import claim, lock, publish, sidecars
from beam_tfr.records import examples

# Functions of the pipeline's steps: each may fail before it began, and after it had all its
# effects.
PLACES: list[tuple[Any, str]] = [
    (claim, "claim_folder"),
    (sidecars, "read_finished"),
    (images, "convert_image"),
    (examples, "build_record"),
    (storage, "create"),  # also of `write_bytes`
    (storage.disk.DiskPendingFile, "commit"),
    (storage.gcs.GcsPendingFile, "commit"),
    (sidecars, "write_sidecar"),
    (lock, "check_lock"),
    (publish, "publish_dataset"),
    (claim, "remove_work_folder"),
    (storage, "delete_all"),
]


class InjectedError(Exception):
    pass


class Attempts:
    """What happened: dry runs that ended well, and the places at which others failed."""

    def __init__(self) -> None:
        self.done = 0
        self.failed: list[str] = []
        self.chance: random.Random | None = None  # while a bundle may fail
        self.left: int | None = None  # calls until it does; with `chance` chosen at its first place
        self.thread = (
            0  # of the bundle: a heartbeat's calls come when the clock says, and do not count
        )

    def step(self, place: str) -> None:
        if threading.get_ident() != self.thread:
            return
        if self.left is None and self.chance is not None:
            self.left = self.chance.choice((self.chance.randrange(8), self.chance.randrange(60)))
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = self.chance = None
                self.failed.append(place)
                raise InjectedError(place)


@contextlib.contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, attempts: Attempts) -> Iterator[None]:
    """Within the block `PLACES` fail as `attempts` says, in this thread."""
    attempts.thread = threading.get_ident()

    def faulty(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            attempts.step(f"before {name}")
            result = function(*arguments, **named)
            attempts.step(f"after {name}")
            return result

        return call

    with monkeypatch.context() as patch:
        for owner, name in PLACES:
            patch.setattr(owner, name, faulty(getattr(owner, name), name))
        yield


@contextlib.contextmanager
def every_bundle_twice(
    monkeypatch: pytest.MonkeyPatch, chance: random.Random | None
) -> Iterator[Attempts]:
    """Within the block, each bundle of the FnApiRunner has a dry run first.

    Its outputs are dropped. With `chance` it fails at one of the first places that it passes, or
    ends well. The runner is in this process, with one thread.
    """
    attempts = Attempts()
    process_bundle = BundleManager.process_bundle

    def twice(self: BundleManager, *arguments: Any, **named: Any) -> Any:
        attempts.thread = threading.get_ident()
        attempts.chance, attempts.left = chance, None
        try:
            process_bundle(self, *arguments, **{**named, "dry_run": True})
            attempts.done += 1
        except InjectedError:
            pass
        except RuntimeError as error:
            if "InjectedError" not in str(error):
                raise
        attempts.chance = attempts.left = None
        return process_bundle(self, *arguments, **named)

    with failing(monkeypatch, attempts), monkeypatch.context() as patch:
        patch.setattr(BundleManager, "process_bundle", twice)
        yield attempts
