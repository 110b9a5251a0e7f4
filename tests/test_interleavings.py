"""Runs that take over from each other, interleaved at every request by hypothesis.

No published byte is ever wrong.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfr import storage
from beam_tfr.output import lock, lock_holder
from beam_tfr.schema.plan import Plan
from beam_tfr.storage import Entry, PendingFile
from tests.faults import rivals
from tests.faults.rivals import plan_of

OUT = "gs://b/out"
PATIENCE_S = 60.0


class Store:
    """Files in memory.

    Each request waits for its turn. A generation belongs to one content of one path.

    Attributes:
        turn: called before each request.
    """

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}
        self._checked: dict[str, tuple[bytes, int]] = {}
        self.generation = 0
        self.turn: Callable[[], None] = lambda: None

    def put(self, path: str, data: bytes) -> int:
        self.generation += 1
        self.files[path] = data, self.generation
        return self.generation

    def find(self, path: str) -> Entry | None:
        self.turn()
        found = self.files.get(path)
        return found and Entry(path, len(found[0]), found[1])

    def walk(
        self, folder: str, descend: object, *, prefix: str = "", deep: bool = True, **_: Any
    ) -> Iterator[Entry]:
        self.turn()
        start = f"{folder.rstrip('/')}/"
        for path, (data, generation) in sorted(self.files.items()):
            if path.startswith(start + prefix) and (deep or "/" not in path[len(start) :]):
                yield Entry(path, len(data), generation)

    def list_folder(self, folder: str, *, prefix: str = "") -> list[str]:
        return [
            entry.path.rpartition("/")[2]
            for entry in self.walk(folder, None, prefix=prefix, deep=False)
        ]

    def list_files(self, folder: str) -> list[Entry]:
        return [*self.walk(folder.rstrip("/"), None, deep=False)]

    def read_bytes(self, path: str, **_: Any) -> bytes:
        self.turn()
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][0]

    def open_binary(self, path: str) -> IO[bytes]:
        return io.BytesIO(self.read_bytes(path))

    def create(self, path: str, *, scratch: str, replace: bool = True) -> PendingFile:
        return _Pending(self, path, replace)

    def write_bytes(self, path: str, data: bytes, *, scratch: str, replace: bool = True) -> None:
        with self.create(path, scratch=scratch, replace=replace) as file:
            file.write(data)
            file.commit()

    def move(self, source: str, target: str, *, generation: int = 0) -> None:
        self.turn()
        if source not in self.files:
            raise FileNotFoundError(source)
        if generation not in (0, self.files[source][1]):
            raise storage.ChangedError(source)
        self.put(target, self.files.pop(source)[0])

    def delete(self, path: str, *, generation: int = 0) -> None:
        self.turn()
        if generation in (0, self.files.get(path, (b"", -1))[1]):
            self.files.pop(path, None)

    def for_each_file(self, call: Callable[[Entry], object], entries: Any) -> None:
        for entry in entries:
            call(entry)

    def delete_all(self, entries: Any) -> None:
        self.for_each_file(
            lambda entry: self.delete(entry.path, generation=entry.generation), entries
        )

    def touch(self, path: str, **_: Any) -> None:
        self.turn()

    def check(self) -> None:
        """Raises the AssertionError of `rivals.check`."""
        if self.files == self._checked:
            return
        self._checked = dict(self.files)
        start = f"{OUT}/"
        rivals.check({path.removeprefix(start): data for path, (data, _) in self.files.items()})


class _Pending(PendingFile):
    def __init__(self, store: Store, path: str, replace: bool) -> None:
        found = store.find(path) if replace else None
        self._store, self._path, self._generation = store, path, found.generation if found else 0
        self._file = io.BytesIO()

    def commit(self) -> int:
        self._store.turn()
        data, found = self._file.getvalue(), self._store.files.get(self._path, (b"", 0))
        if found[1] != self._generation:
            if found[0] != data or not found[1]:
                raise storage.AlreadyExistsError(self._path)
            return found[1]
        return self._store.put(self._path, data)


class Scheduler:
    """Lets one of several threads go on to its next request.

    Args:
        store: the files of all threads.
    """

    def __init__(self, store: Store) -> None:
        self.waiting: dict[str, threading.Event] = {}
        self._over = False
        self._reached = threading.Condition()
        self._threads: dict[str, threading.Thread] = {}
        store.turn = self._wait

    def start(self, name: str, call: Callable[[], object]) -> None:
        def run() -> None:
            try:
                self._wait()
                call()
            finally:
                with self._reached:
                    del self._threads[name]
                    self._reached.notify_all()

        self._threads[name] = threading.Thread(target=run, name=name, daemon=True)
        self._threads[name].start()
        self._settle()

    def living(self) -> list[str]:
        return sorted(self._threads)

    def go_on(self, name: str) -> None:
        with self._reached:
            self.waiting.pop(name).set()
        self._settle()

    def _wait(self) -> None:
        name = threading.current_thread().name
        if name not in self._threads:
            return
        if self._over:
            raise SystemExit
        event = threading.Event()
        with self._reached:
            self.waiting[name] = event
            self._reached.notify_all()
        assert event.wait(PATIENCE_S)
        if self._over:
            raise SystemExit

    @contextlib.contextmanager
    def ends(self) -> Iterator[None]:
        """Ends all threads with the block.

        hypothesis leaves an example that has become too long.
        """
        try:
            yield
        finally:
            with self._reached:
                self._over = True
                for event in self.waiting.values():
                    event.set()
                assert self._reached.wait_for(lambda: not self._threads, PATIENCE_S)

    def _settle(self) -> None:
        """Waits until every thread waits, or has ended."""
        with self._reached:
            assert self._reached.wait_for(
                lambda: self.waiting.keys() == self._threads.keys(), PATIENCE_S
            )


@contextlib.contextmanager
def in_memory(store: Store, buried: set[str]) -> Iterator[None]:
    """Within the block storage is `store`, and the runs in `buried` seem to be dead."""
    with pytest.MonkeyPatch.context() as patch:
        for name in dir(store):
            if not name.startswith("_") and hasattr(storage, name):
                patch.setattr(storage, name, getattr(store, name))
        # one that comes on a busy machine would be a request out of turn
        patch.setattr(lock, "HEARTBEAT_S", 1e6)
        patch.setattr(lock_holder, "holder_lives", lambda held, *_: held.run_id not in buried)
        yield


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data())
def test_no_interleaving_of_runs_publishes_wrong_bytes(data: st.DataObject) -> None:
    store, buried, ended = Store(), set[str](), dict[str, str]()
    lock._find_lock_path.cache_clear()
    if data.draw(st.booleans(), "a dataset stands"):
        with in_memory(store, buried):
            assert rivals.convert(OUT, "first", plan_of(9, 9), overwrite=False) == "published"
    plans = [plan_of(data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))) for _ in range(3)]
    scheduler = Scheduler(store)
    with in_memory(store, buried), scheduler.ends():
        waiting = [f"run {number}" for number in range(3)]

        def start(name: str, plan: Plan) -> None:
            scheduler.start(
                name, lambda: ended.update({name: rivals.convert(OUT, name, plan, overwrite=True)})
            )

        while waiting or scheduler.living():
            living = scheduler.living()
            if waiting and (not living or not data.draw(st.integers(0, 12), "begin another run")):
                buried |= {*living}  # their machines seem to be gone
                start(waiting.pop(0), plans.pop())
                continue
            name = data.draw(st.sampled_from(living), "who goes on")
            for _ in range(data.draw(st.sampled_from((1, 1, 2, 5, 20)), "for how long")):
                if name in scheduler.living():
                    scheduler.go_on(name)
                    store.check()
        store.turn = lambda: None
        buried.update(ended)  # `|=` with keys of a dict would make another set
        last = plan_of(5, 5)
        assert rivals.convert(OUT, "last", last, overwrite=True) == "published", ended
        store.check()
    manifest = json.loads(store.files[f"{OUT}/manifest.json"][0])
    assert manifest["options"] == last.options
    assert all(".beam_tfr" not in path for path in store.files), sorted(store.files)
    assert "Traceback" not in "".join(ended.values())


def test_the_store_would_show_a_wrong_byte() -> None:
    store = Store()
    with in_memory(store, set()):
        assert rivals.convert(OUT, "first", plan_of(0, 0), overwrite=False) == "published"
        store.check()
        assert rivals.convert(OUT, "second", plan_of(0, 0), overwrite=False) == "complete"
        refused = rivals.convert(OUT, "third", plan_of(1, 0), overwrite=False)
        assert refused.startswith(
            "UsageError: `output=gs://b/out`: holds a dataset with different input or options"
        ), refused
    store.put(f"{OUT}/d-train-00001-of-00002.tfrecord.gz", b"of another run")
    with pytest.raises(AssertionError):
        store.check()


def test_a_run_that_was_taken_over_deletes_nothing_of_its_successor() -> None:
    store, buried = Store(), set[str]()
    lock._find_lock_path.cache_clear()
    walk = store.walk

    def overtaken(folder: str, *arguments: Any, **named: Any) -> Iterator[Entry]:
        if folder.endswith(".beam_tfr") and not named.get("deep", True) and not buried:
            buried.add("first")
            assert rivals.convert(OUT, "second", plan_of(1, 1), overwrite=True) == "published"
            store.put(f"{OUT}/.beam_tfr/train-00000-of-00002.records-0", b"of a third run")
        return walk(folder, *arguments, **named)

    store.walk = overtaken  # type: ignore[method-assign]
    with in_memory(store, buried):
        assert "was taken over by another run" in rivals.convert(
            OUT, "first", plan_of(0, 0), overwrite=True
        )
    assert f"{OUT}/.beam_tfr/train-00000-of-00002.records-0" in store.files


def test_an_old_file_is_never_taken_for_one_that_was_moved_in_its_place() -> None:
    store = Store()
    lock._find_lock_path.cache_clear()
    move, lost = store.move, list[str]()

    def without_one(source: str, target: str, *, generation: int = 0) -> None:
        if "d-train-00000" in target and not lost:
            lost.append(source)
            store.files.pop(source)
        move(source, target, generation=generation)

    with in_memory(store, set()):
        assert rivals.convert(OUT, "first", plan_of(0, 0), overwrite=False) == "published"
    store.move = without_one  # type: ignore[method-assign]
    with in_memory(store, set()):
        refused = rivals.convert(OUT, "second", plan_of(1, 1), overwrite=True)
        assert refused.startswith(
            f"RunError: files in {OUT} were changed while they were moved into place"
        ), refused
        assert f"{OUT}/manifest.json" not in store.files
        assert rivals.convert(OUT, "third", plan_of(1, 1), overwrite=True) == "published"
        store.check()
