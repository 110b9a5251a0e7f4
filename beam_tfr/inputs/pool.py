"""A pool of threads that never keep the process alive."""

import functools
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
Argument = TypeVar("Argument")


class Pool:
    """A pool of daemon threads.

    Threads of concurrent.futures would delay Ctrl-C while they wait for a dead service.

    Args:
        threads: maximum number of threads, started as needed.
        name: name of the threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._name = name
        self._started = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.closed = threading.Event()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Calls a function in one of the threads, unless the pool is closed first.

        Do not call this once the pool is closed.
        """
        future: Future[T] = Future()

        def job() -> None:
            if self.closed.is_set():
                future.cancel()
                return
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised by Future.result
                future.set_exception(error)

        self._jobs.put(job)
        if self._started < self._threads:
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def map(self, function: Callable[[Argument], T], arguments: Iterable[Argument]) -> list[T]:
        """Calls a function with each argument, and waits for the results."""
        futures = [self.submit(functools.partial(function, argument)) for argument in arguments]
        return [future.result() for future in futures]

    def _work(self) -> None:
        for job in iter(self._jobs.get, None):
            job()
            del job  # otherwise it keeps the result alive

    def close(self) -> None:
        """Cancels calls that have not started; does not wait for calls that have."""
        self.closed.set()
        for _ in range(self._started):
            self._jobs.put(None)
