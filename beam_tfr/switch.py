"""The switch: puts a dataset that was built in the work folder in the place of what stands in the output.

A run builds its files in `OUT/.beam_tfr`, each under a name of its own, so it can touch neither a published dataset nor
what another run builds. When all are complete, the publisher writes `switch.json`, which says what goes where. From
then on the switch is decided, and whoever holds the folder next completes one that was cut off:

    the old manifest is removed ─▶ the files are moved to their places ─▶ other old files go ─▶ the new manifest

So while a manifest stands, every file is the one it describes; readers rely on that.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.naming import parse_file_name
from beam_tfr.schema import LABELS_FILE, MANIFEST_FILE, REJECTS_FILE, SWITCH_FILE, RunError, canonical_json
from beam_tfr.storage import Entry, join, work_path

_TAKEN = "another run published a different dataset into {} while this one ran"


class Built(NamedTuple):
    """A file in the work folder, and its name in the dataset; an empty `built` means that it is in its place."""

    name: str
    built: str
    num_bytes: int
    generation: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switch:
    """What a switch does.

    Attributes:
        replaces: generation of the manifest that stands in the output; 0 if there is none.
        old: (name, generation) of each other file that goes.
        files: the files of the new dataset except its manifest.
        manifest: content of the new manifest.
    """

    replaces: int
    old: list[tuple[str, int]]
    files: list[Built]
    manifest: str


def publish(output: str, switch: Switch, *, check_held: Callable[[], None]) -> None:
    """Decides on a switch and makes it.

    Another run that takes over the folder looks for a switch after it has the lock, and this run looks at the lock
    after it has written the switch. So one of the two sees the other.

    Args:
        output: folder of the dataset.
        switch: what to do.
        check_held: raises an error if this run has lost the folder.

    Raises:
        RunError: another run has published, or taken over.
    """
    path = work_path(output, SWITCH_FILE)
    try:
        storage.write_bytes(
            path, canonical_json(dataclasses.asdict(switch)), scratch=work_path(output, ""), replace=False
        )
    except storage.AlreadyExistsError:
        raise RunError(_TAKEN.format(output)) from None
    decided = storage.find(path)
    try:
        check_held()
    except BaseException:
        storage.delete(path, generation=decided.generation if decided else 0)
        raise
    if not complete(output):
        raise RunError(_TAKEN.format(output))


def complete(output: str) -> bool:
    """Completes a switch that was decided on; returns False if there is none, or it is void.

    It is void if another dataset was published since, or its files are gone while the old dataset still stands.

    Raises:
        RunError: another run completes it at the same time, or its files were changed.
    """
    path, manifest = work_path(output, SWITCH_FILE), join(output, MANIFEST_FILE)
    try:
        fields = json.loads(storage.read_bytes(path))
        switch = Switch(**{**fields, "files": [Built(*file) for file in fields["files"]]})
    except FileNotFoundError:
        return False
    except (ValueError, LookupError, TypeError):  # damaged: the shards are still there, and will be published again
        storage.delete(path)
        return False
    places = {work_path(output, file.built): file for file in switch.files if file.built}
    waiting = [entry for entry in list_files(work_path(output, "")) if entry.path in places]
    standing = storage.find(manifest)
    if standing is not None:
        if standing.generation != switch.replaces:
            storage.delete(path)
            return storage.read_bytes(manifest) == switch.manifest.encode()
        if len(waiting) < len(places):
            storage.delete(path)
            return False
        storage.delete(manifest, generation=switch.replaces)

    def move(entry: Entry) -> None:
        file = places[entry.path]
        try:
            storage.move(entry.path, join(output, file.name), generation=file.generation)
        except FileNotFoundError:  # moved already, by a request whose answer was lost
            pass
        except storage.ChangedError as error:
            raise RunError(f"{entry.path} was changed by another program; run the same command again") from error

    storage.for_each(move, waiting)
    storage.delete_all([Entry(join(output, name), 0, generation) for name, generation in switch.old])
    sizes = {entry.path: entry.size_bytes for entry in list_files(output)}
    for file in switch.files:
        if sizes.get(join(output, file.name)) != file.num_bytes:
            raise RunError(
                f"{join(output, file.name)} is missing or was changed while the dataset was put into place; run the "
                "same command again"
            )
    storage.sync_folder(output)
    try:
        storage.write_bytes(manifest, switch.manifest.encode(), scratch=work_path(output, ""), replace=False)
    except storage.AlreadyExistsError:
        raise RunError(_TAKEN.format(output)) from None
    storage.delete(path)
    return True


def list_files(folder: str) -> list[Entry]:
    """The files directly in a folder."""
    return [*storage.walk(folder.rstrip("/"), lambda _: False, deep=False)]


def name_of(entry: Entry) -> str:
    """The name of a file in its folder."""
    return entry.path.rpartition("/")[2]


def is_of_dataset(name: str, dataset: str = "") -> bool:
    """True if a conversion to a dataset of this name, or any, writes a file of this name; not the manifest."""
    parsed = parse_file_name(name)
    return name in (LABELS_FILE, REJECTS_FILE) if parsed is None else dataset in ("", parsed[0])
