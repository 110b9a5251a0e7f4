"""Notes of a run for its summary: what the listing skipped.

A run that publishes a dataset writes them to `OUT/.beam_tfr/RUN.notes` if the process that started it waits for its
end. That process takes them, and the folder is gone.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.storage import work_path


class Notes(NamedTuple):
    """The notes of a run.

    Attributes:
        skipped: kind of name, such as ".txt" -> files of the folders and patterns of `input=`; see `inputs.skipped`.
        nested: result of `Folders.nested`.
    """

    skipped: Mapping[str, int] = {}
    nested: Mapping[str, int] = {}


def write(output: str, run_id: str, notes: Notes) -> None:
    """Writes the notes of a run that has published its dataset, which does not need them: errors are ignored."""
    folder, data = work_path(output, ""), json.dumps(notes._asdict()).encode()
    with contextlib.suppress(OSError):
        storage.make_folder(folder)
        storage.write_bytes(work_path(output, f"{run_id}.notes"), data, scratch=folder)


def take(output: str, run_id: str) -> Notes:
    """The notes of a run, which are removed; empty if there are none."""
    path = work_path(output, f"{run_id}.notes")
    try:
        fields = json.loads(storage.read_bytes(path))
        storage.delete(path)
    except (OSError, ValueError):
        return Notes()
    storage.remove_folder(work_path(output, ""))  # unless another run has begun
    return Notes(**fields)
