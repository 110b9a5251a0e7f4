"""What workers of DataLoaders and pools read, in processes of their own.

They import this module, which therefore imports neither TensorFlow nor Beam.
"""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

from pyarrow.compute import field

from beam_tfr import Records
from beam_tfr.torch import ImageDataset


def in_turn(shares: list[Any]) -> list[Any]:
    """One element of each worker in turn, as DataLoader takes them."""
    missing = object()
    rounds = itertools.zip_longest(*shares, fillvalue=missing)
    return [element for turn in rounds for element in turn if element is not missing]


def write_share(dataset: ImageDataset, worker: int, workers: int, path: Path) -> None:
    path.write_bytes(pickle.dumps(list(dataset.share_of_worker(worker, workers))))


def read_by_workers(dataset: ImageDataset, workers: int, method: str, folder: Path) -> list[Any]:
    """Read by other processes."""
    paths = [folder / str(worker) for worker in range(workers)]
    for worker, path in enumerate(paths):
        arguments = (dataset, worker, workers, path)
        process = multiprocessing.get_context(method).Process(target=write_share, args=arguments)
        process.start()
        process.join(60)
    return in_turn([pickle.loads(path.read_bytes()) for path in paths])


def read_and_count(records: Records, number: int) -> tuple[bytes, int]:
    """A record, and how many are hats."""
    return records[number], len(records.where(field("class") == "hat"))
