"""The switch: replaces the dataset in the output folder by the one that was built in the work
folder.

A run builds its files in `OUT/.beam_tfr`, each under a name of its own, so it can touch neither a
published dataset nor what another run builds. When all are complete, the publisher writes
`switch.json`, which lists where each file goes. From then on the switch is decided, and the next
run that holds the folder completes one that was cut off:

    the old manifest is removed ─▶ the files are moved to their places ─▶ other old files go ─▶ the
    manifest is moved

So while a manifest exists, every file is the one it describes; readers rely on that.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.schema import dataset as names
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.naming import CONTENTS_SUFFIX, SUFFIXES, parse_file_name
from beam_tfr.storage import Entry, join, work_path

_TAKEN = "another run published a different dataset into {} while this one ran"


class Built(NamedTuple):
    """A file in the work folder, and its name in the dataset; an empty `built` means that it is in
    its place."""

    name: str
    built: str
    num_bytes: int
    generation: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switch:
    """What a switch does.

    Attributes:
        replaces: generation of the manifest in the output; 0 if there is none.
        old: (name, generation) of each other file of a dataset that is there.
        files: the files of the new dataset, its manifest last.
    """

    replaces: int
    old: list[tuple[str, int]]
    files: list[Built]


def make_switch(output: str, switch: Switch, *, check_lock: Callable[[], None]) -> None:
    """Decides on a switch and makes it.

    Another run that takes over the folder looks for a switch after it has the lock, and this run
    looks at the lock after it has written the switch. So one of the two sees the other.

    Args:
        output: folder of the dataset.
        switch: what to do.
        check_lock: raises an error if this run has lost the folder.

    Raises:
        RunError: another run has published, or taken over; or a folder has the name of a file.
    """
    places = [join(output, file.name) for file in switch.files]
    blocked = next(filter(storage.is_folder, places), None)
    if blocked:
        raise RunError(f"{blocked} is a folder; move it away, and run the same command again")
    path = work_path(output, names.SWITCH_FILE)
    data = names.canonical_json(dataclasses.asdict(switch))
    try:
        storage.write_bytes(path, data, scratch=work_path(output, ""), replace=False)
    except storage.AlreadyExistsError:
        raise RunError(_TAKEN.format(output)) from None
    decided = storage.find(path)
    try:
        check_lock()
    except BaseException:
        storage.delete(path, generation=decided.generation if decided else 0)
        raise
    if not complete_switch(output):
        raise RunError(_TAKEN.format(output))


def complete_switch(output: str) -> bool:
    """Completes a switch that was decided on; returns False if there is none, or it is void.

    Each file is moved from a name that nothing else has, the manifest last. So of two runs that
    complete a switch at the same time only one moves it, and one that was suspended meanwhile moves
    nothing any more.

    A switch is void if another dataset was published since, or one of its files is gone or was
    changed: then its shards are published again, or those that are gone are written again.

    Raises:
        RunError: another run completes it at the same time.
    """
    path = work_path(output, names.SWITCH_FILE)
    manifest = join(output, names.MANIFEST_FILE)
    decided = storage.find(path)
    try:
        fields = json.loads(storage.read_bytes(path))
        switch = Switch(**{**fields, "files": [Built(*file) for file in fields["files"]]})
    except FileNotFoundError:
        return False
    except (ValueError, LookupError, TypeError):  # damaged: the shards are still there
        storage.delete(path)
        return False

    def end(*, done: bool) -> bool:
        storage.delete(path, generation=decided.generation if decided else 0)
        return done

    places = {work_path(output, file.built): file for file in switch.files if file.built}
    waiting = [entry for entry in storage.list_files(work_path(output, "")) if entry.path in places]
    remaining = {entry.path for entry in waiting}
    last = work_path(output, switch.files[-1].built)
    current = storage.find(manifest)
    if current is not None and current.generation != switch.replaces:
        return end(done=last not in remaining)
    if (
        any(entry.generation != places[entry.path].generation for entry in waiting)
        or last not in remaining
    ):
        return end(done=False)
    if current is not None:
        if len(remaining) < len(places):
            return end(done=False)
        storage.delete(manifest, generation=switch.replaces)
        storage.sync_folder(output)
    elif not _are_there(
        output, [file for place, file in places.items() if place not in remaining], dict(switch.old)
    ):
        return end(done=False)

    def move(entry: Entry) -> None:
        file = places[entry.path]
        # One that is gone was moved already: by a request whose answer was lost, or another run.
        with contextlib.suppress(FileNotFoundError):
            storage.move(entry.path, join(output, file.name), generation=file.generation)

    storage.make_folder(join(output, names.CONTENTS_FOLDER))
    storage.for_each(move, (entry for entry in waiting if entry.path != last))
    kept = {file.name for file in switch.files}
    old = dict(switch.old)
    storage.delete_all([Entry(join(output, name), 0, old[name]) for name in old.keys() - kept])
    if not _are_there(output, switch.files[:-1], old):
        raise RunError(
            f"files in {output} were changed while they were put into place; run the same command again"
        )
    storage.sync_folder(join(output, names.CONTENTS_FOLDER))
    storage.sync_folder(output)
    try:
        storage.move(last, manifest, generation=switch.files[-1].generation)
    except FileNotFoundError:  # moved already, as above
        moved = storage.find(manifest)
        if moved is None or moved.size_bytes != switch.files[-1].num_bytes:
            raise RunError(_TAKEN.format(output)) from None
    except storage.ChangedError:
        raise RunError(_TAKEN.format(output)) from None
    storage.sync_folder(output)
    return end(done=True)


def _are_there(output: str, files: Sequence[Built], old: Mapping[str, int]) -> bool:
    """True if files are in their places, by size and generation, which moving keeps on a disk and
    changes on gs://."""
    found = {entry.path: entry for entry in list_dataset(output)} if files else {}
    for file in files:
        entry = found.get(join(output, file.name))
        if entry is None or entry.size_bytes != file.num_bytes:
            return False
        if storage.is_gcs(output) and file.built:
            if entry.generation == old.get(file.name):
                return False
        elif entry.generation != file.generation:
            return False
    return True


def list_dataset(output: str) -> list[Entry]:
    """The files of a dataset, and others beside them."""
    return [*storage.list_files(output), *storage.list_files(join(output, names.CONTENTS_FOLDER))]


def name_in(output: str, entry: Entry) -> str:
    """The name of a file of a dataset: `labels.txt`, `contents/SHA256SUMS`."""
    return entry.path.removeprefix(join(output, ""))


def is_of_dataset(name: str, dataset: str = "") -> bool:
    """True if a conversion to a dataset of this name, or any, writes a file of this name; not the
    manifest.

    A README.md may be somebody's own.
    """
    if name in (
        names.LABELS_FILE,
        names.REJECTS_FILE,
        names.SUMS_FILE,
        names.HISTORY_FILE,
        *names.METADATA_FILES,
    ):
        return name != names.CARD_FILE
    parsed = parse_file_name(name)
    if (
        parsed is None
        and name.startswith(f"{names.CONTENTS_FOLDER}/")
        and name.endswith(CONTENTS_SUFFIX)
    ):
        inside = name.removeprefix(f"{names.CONTENTS_FOLDER}/").removesuffix(CONTENTS_SUFFIX)
        parsed = parse_file_name(f"{inside}{SUFFIXES['none']}")
    return parsed is not None and dataset in ("", parsed[0])
