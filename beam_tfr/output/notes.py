"""Notes of a run for its summary: kind of name -> files that the listing skipped.

A run that publishes a dataset writes them to `OUT/.beam_tfr/RUN.notes` if the process that started it waits for its
end. That process takes them, and the folder is gone.
"""

import contextlib
import json
from collections.abc import Mapping

from beam_tfr import storage
from beam_tfr.storage import work_path


def write(output: str, run_id: str, skipped: Mapping[str, int]) -> None:
    """Writes the notes of a run that has published its dataset, which does not need them: errors are ignored."""
    folder, data = work_path(output, ""), json.dumps(skipped).encode()
    with contextlib.suppress(OSError):
        storage.make_folder(folder)
        storage.write_bytes(work_path(output, f"{run_id}.notes"), data, scratch=folder)


def take(output: str, run_id: str) -> dict[str, int]:
    """The notes of a run, which are removed; empty if there are none."""
    path = work_path(output, f"{run_id}.notes")
    try:
        skipped: dict[str, int] = json.loads(storage.read_bytes(path))
        storage.delete(path)
    except (OSError, ValueError):
        return {}
    storage.remove_folder(work_path(output, ""))  # unless another run has begun
    return skipped
