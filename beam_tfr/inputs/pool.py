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
    """A pool of daemon threads, because those of concurrent.futures delay Ctrl-C while they wait
    for a dead service.

    Args:
        threads: maximum number of threads, started as needed.
        name: name of the threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._name = name
        self._begun = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.closed = threading.Event()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Calls a function in one of the threads, unless the pool is closed before; not to be
        called after that."""
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
        if self._begun < self._threads:
            self._begun += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def map(self, function: Callable[[Argument], T], arguments: Iterable[Argument]) -> list[T]:
        """Calls a function with each argument, and waits for the results."""
        futures = [self.submit(functools.partial(function, argument)) for argument in arguments]
        return [future.result() for future in futures]

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it holds the result

    def close(self) -> None:
        """Cancels calls that have not started, without waiting for the others."""
        self.closed.set()
        for _ in range(self._begun):
            self._jobs.put(None)
