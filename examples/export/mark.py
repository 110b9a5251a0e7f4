"""export.json in an export: the dataset and the options that it is made from, and whether it is complete."""

import json
from collections.abc import Mapping

from beam_tfr import storage
from beam_tfr.schema.dataset import WORK_FOLDER
from beam_tfr.schema.errors import UsageError

MARK = "export.json"


def is_complete(output: str, about: Mapping[str, object]) -> bool:
    """Whether a folder holds this export; False if it is empty, or holds only a part of it.

    Raises:
        UsageError: it holds something else, or cannot be read.
    """
    work = storage.join(output, WORK_FOLDER)
    try:
        found = storage.read_existing(storage.join(output, MARK))
        there = () if found else (entry.path for entry in storage.walk(output, lambda _: True))
        problem = next((f"holds other files, such as {path}" for path in there if not path.startswith(work)), "")
    except OSError as error:
        found, problem = None, f"cannot be read: {error.strerror or error}"
    complete, begun = (_content(about, complete=state) for state in (True, False))
    if found not in (None, complete, begun):
        problem = f"holds another export, of another dataset or other options ({(found or b'')[:500]!r})"
    if problem:
        raise UsageError(f"{problem}; give an empty folder", option="output", value=output)
    return found == complete


def write_mark(output: str, about: Mapping[str, object], *, complete: bool) -> None:
    """Writes the mark."""
    scratch = storage.work_path(output, "")
    storage.write_bytes(storage.join(output, MARK), _content(about, complete=complete), scratch=scratch)


def _content(about: Mapping[str, object], *, complete: bool) -> bytes:
    return json.dumps({**about, "complete": complete}, indent=1, sort_keys=True).encode() + b"\n"
