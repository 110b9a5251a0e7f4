"""Replaces the dataset in the output folder with the new one that was built in the work folder.

A run builds its files in `OUT/.beam_tfr`, each under a unique name, so it can touch neither a
published dataset nor the files that another run builds. When all files are complete, the publisher
writes `switch.json`, which lists where each file goes. From then on, the switch is decided. If it
is interrupted, the next run that holds the folder completes the switch:

    the old manifest is removed
    ─▶ the files are moved to their places
    ─▶ other old files are removed
    ─▶ the manifest is moved

So while a manifest exists, it describes every file; readers rely on this.
"""

import contextlib
import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from beam_tfr import storage
from beam_tfr.schema.dataset import (
    CARD_FILE,
    CONTENTS_FOLDER,
    HISTORY_FILE,
    LABELS_FILE,
    MANIFEST_FILE,
    METADATA_FILES,
    REJECTS_FILE,
    REPORT_FILE,
    SUMS_FILE,
    SWITCH_FILE,
    canonical_json,
)
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.naming import CONTENTS_SUFFIX, SUFFIXES, is_plain_name, parse_file_name
from beam_tfr.schema.untrusted import check_json_size, parse_json
from beam_tfr.storage import Entry, join, work_path

MOST_STATE_BYTES = 128 << 20  # 128 MiB of a file that holds the state of a run
# Enough for a switch between two datasets of `MOST_SHARDS`.
_MAX_CONTAINERS = 1_000_000
_MAX_VALUES = 4_000_000
# Files next to the shards and the manifest; README.md may belong to the user.
_FILES_BESIDE = {
    LABELS_FILE,
    REJECTS_FILE,
    SUMS_FILE,
    HISTORY_FILE,
    REPORT_FILE,
    *METADATA_FILES,
} - {CARD_FILE}


def parse_state(data: bytes) -> Any:
    """Parses a file that holds the state of a run, in limited memory.

    Raises:
        ValueError: the content is not JSON, or has more values than any state.
    """
    check_json_size(data, most_containers=_MAX_CONTAINERS, most_values=_MAX_VALUES)
    return parse_json(data)


class BuiltFile(NamedTuple):
    """A file of the new dataset.

    Attributes:
        name: name of the file in the dataset.
        built: name of the file in the work folder; empty if the file is already in its place.
        num_bytes: size of the file.
        generation: as in `storage.Entry`.
    """

    name: str
    built: str
    num_bytes: int
    generation: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switch:
    """The steps of a switch, and the content of switch.json.

    Attributes:
        replaces: generation of the manifest in the output; 0 if there is no manifest.
        old: (name, generation) of each other file of an existing dataset.
        files: the files of the new dataset; its manifest comes last.
    """

    replaces: int
    old: list[tuple[str, int]]
    files: list[BuiltFile]

    def __post_init__(self) -> None:
        """Checks the names of all files, because the folder of a switch may come from a stranger.

        Raises:
            ValueError: one of the names cannot be the name of a file in a dataset.
        """
        names = [name for name, _ in self.old] + [file.name for file in self.files[:-1]]
        wrong = [name for name in names if not (name == CARD_FILE or is_of_dataset(name))]
        built = [file.built for file in self.files if file.built]
        wrong += itertools.filterfalse(is_plain_name, built)
        if wrong or self.manifest.name != MANIFEST_FILE:
            raise ValueError(f"{wrong[:1]} are not names of dataset files")

    def to_json(self) -> bytes:
        return canonical_json(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Parses the content of switch.json.

        Raises:
            ValueError, LookupError, TypeError, OverflowError: the content is damaged.
        """
        fields = parse_state(data)
        files = [
            BuiltFile(str(name), str(built), int(num_bytes), int(generation))
            for name, built, num_bytes, generation in fields["files"]
        ]
        old = [(str(name), int(generation)) for name, generation in fields["old"]]
        return cls(replaces=int(fields["replaces"]), old=old, files=files)

    @property
    def manifest(self) -> BuiltFile:
        return self.files[-1]

    @functools.cached_property
    def built(self) -> dict[str, BuiltFile]:
        """The files that must be moved, by their names in the work folder."""
        return {file.built: file for file in self.files if file.built}

    @functools.cached_property
    def old_generations(self) -> dict[str, int]:
        """Name -> generation of the files in `old`."""
        return dict(self.old)


class SwitchState(enum.Enum):
    """The progress of a switch that was decided."""

    VOID = enum.auto()  # its files are missing or changed, or another dataset was published
    DECIDED = enum.auto()  # the old manifest exists, and all files wait in the work folder
    MOVING = enum.auto()  # no manifest exists; each file waits or is in its place
    DONE = enum.auto()  # the manifest was moved out of the work folder, the last of all files


def make_switch(output: str, switch: Switch, *, check_lock: Callable[[], None]) -> None:
    """Decides on a switch and makes it.

    Another run that takes over the folder looks for a switch after it has the lock, and this run
    looks at the lock after it has written the switch. So one of the two runs notices the other.

    Args:
        output: folder of the dataset.
        switch: the switch to make.
        check_lock: raises an error if this run has lost the folder.

    Raises:
        RunError: another run has published or taken over, or a folder has the name of a file.
    """
    _check_no_folders(output, switch)
    path = work_path(output, SWITCH_FILE)
    try:
        scratch = work_path(output, "")
        storage.write_bytes(path, switch.to_json(), scratch=scratch, replace=False)
    except storage.AlreadyExistsError:
        raise _other_dataset(output) from None
    generation = find_generation(path)
    try:
        check_lock()
    except BaseException:
        storage.delete(path, generation=generation)
        raise
    if not complete_switch(output):
        raise _other_dataset(output)


def _check_no_folders(output: str, switch: Switch) -> None:
    """Checks that there is no local folder where a file has to go.

    Raises:
        RunError: there is such a folder.
    """
    for file in switch.files:
        path = join(output, file.name)
        if storage.is_folder(path):
            raise RunError(f"{path} is a folder; move it away, and run the same command again")


def find_generation(path: str) -> int:
    """Returns the generation of a file; 0 if it does not exist."""
    entry = storage.find(path)
    return entry.generation if entry else 0


def _other_dataset(output: str) -> RunError:
    return RunError(f"another run published a different dataset into {output} while this one ran")


def complete_switch(output: str) -> bool:
    """Completes a switch that was decided; returns False if there is no valid switch.

    Each file is moved from a unique name, and the manifest is moved last. So if two runs complete a
    switch at the same time, each file is moved by only one of them, and a run that was suspended
    for a while can no longer move anything.

    A switch is not valid if another dataset was published after it, or if one of its files is
    missing or was changed. Then missing shards are written again, and all shards are published
    again.

    Raises:
        RunError: another run completes the switch at the same time.
    """
    path = work_path(output, SWITCH_FILE)
    generation = find_generation(path)
    switch = _read_switch(path)
    if switch is None:
        return False
    waiting = _find_waiting(output, switch)
    state = _find_state(output, switch, waiting)
    if state is SwitchState.DECIDED:
        _remove_old_manifest(output, switch)
        state = SwitchState.MOVING
    if state is SwitchState.MOVING:
        _move_files(output, switch, waiting)
        _remove_old_files(output, switch)
        _check_places(output, switch)
        _move_manifest(output, switch)
        state = SwitchState.DONE
    storage.delete(path, generation=generation)
    return state is SwitchState.DONE


def _read_switch(path: str) -> Switch | None:
    """Reads the switch that was decided; returns None if there is no switch.

    Removes a damaged switch.
    """
    try:
        return Switch.from_json(storage.read_bytes(path, max_bytes=MOST_STATE_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, OverflowError):  # the shards are still there
        storage.delete(path)
        return None


def _find_waiting(output: str, switch: Switch) -> dict[str, Entry]:
    """Finds the files that are still in the work folder; returns name in that folder -> file."""
    entries = storage.list_files(work_path(output, ""))
    return {entry.name: entry for entry in entries if entry.name in switch.built}


def _find_state(output: str, switch: Switch, waiting: Mapping[str, Entry]) -> SwitchState:
    """Finds how far a switch has come, from the files in the output and in the work folder."""
    current = find_generation(join(output, MANIFEST_FILE))
    manifest_waits = switch.manifest.built in waiting
    if current not in (0, switch.replaces):  # another dataset was published since
        return SwitchState.VOID if manifest_waits else SwitchState.DONE
    if not manifest_waits or _are_changed(waiting, switch):
        return SwitchState.VOID
    moved = [file for name, file in switch.built.items() if name not in waiting]
    if current:
        return SwitchState.VOID if moved else SwitchState.DECIDED
    return SwitchState.MOVING if _are_in_place(output, moved, switch) else SwitchState.VOID


def _are_changed(waiting: Mapping[str, Entry], switch: Switch) -> bool:
    """Whether a file in the work folder differs from the file that was built."""
    built = switch.built
    return any(entry.generation != built[name].generation for name, entry in waiting.items())


def _are_in_place(output: str, files: Sequence[BuiltFile], switch: Switch) -> bool:
    """Whether all these files of a switch are in their places."""
    if not files:
        return True
    entries = {name_in_dataset(output, entry): entry for entry in list_dataset(output)}
    return all(_is_in_place(file, entries.get(file.name), switch) for file in files)


def _is_in_place(file: BuiltFile, entry: Entry | None, switch: Switch) -> bool:
    """Whether a file of a switch is in its place, judging by size and generation.

    On a disk, a move keeps the generation. On gs://, a move changes it, so the check can only show
    that the file is not the old file.
    """
    if entry is None or entry.size_bytes != file.num_bytes:
        return False
    if file.built and storage.is_gcs(entry.path):
        return entry.generation != switch.old_generations.get(file.name)
    return entry.generation == file.generation


def _remove_old_manifest(output: str, switch: Switch) -> None:
    storage.delete(join(output, MANIFEST_FILE), generation=switch.replaces)
    storage.sync_folder(output)


def _move_files(output: str, switch: Switch, waiting: Mapping[str, Entry]) -> None:
    """Moves the waiting files to their places, except the manifest."""

    def move_file(entry: Entry) -> None:
        file = switch.built[entry.name]
        # A missing file was already moved, by another run or by a request whose answer was lost.
        with contextlib.suppress(FileNotFoundError):
            storage.move(entry.path, join(output, file.name), generation=file.generation)

    storage.make_folder(join(output, CONTENTS_FOLDER))
    manifest = switch.manifest.built
    storage.for_each_file(move_file, [waiting[name] for name in waiting if name != manifest])


def _remove_old_files(output: str, switch: Switch) -> None:
    """Removes the old dataset's files, except those that new files with the same names replaced."""
    generations = switch.old_generations
    gone = generations.keys() - {file.name for file in switch.files}
    entries = [Entry(join(output, name), 0, generations[name]) for name in sorted(gone)]
    storage.delete_all(entries)


def _check_places(output: str, switch: Switch) -> None:
    """Checks that all files except the manifest are in their places.

    Raises:
        RunError: a file is not in its place.
    """
    if not _are_in_place(output, switch.files[:-1], switch):
        raise RunError(
            f"files in {output} were changed while they were moved into place; run the same "
            "command again"
        )


def _move_manifest(output: str, switch: Switch) -> None:
    """Moves the manifest after all other files, in an order that survives a power failure.

    Raises:
        RunError: another run has published in the meantime.
    """
    storage.sync_folder(join(output, CONTENTS_FOLDER))
    storage.sync_folder(output)
    waits = work_path(output, switch.manifest.built)
    place = join(output, MANIFEST_FILE)
    try:
        storage.move(waits, place, generation=switch.manifest.generation)
    except FileNotFoundError:  # it was already moved, as in `_move_files`
        moved = storage.find(place)
        if moved is None or moved.size_bytes != switch.manifest.num_bytes:
            raise _other_dataset(output) from None
    except storage.ChangedError:
        raise _other_dataset(output) from None
    storage.sync_folder(output)


def list_dataset(output: str) -> list[Entry]:
    """Lists the files of a dataset, and the other files in its folder."""
    contents = join(output, CONTENTS_FOLDER)
    return [*storage.list_files(output), *storage.list_files(contents)]


def name_in_dataset(output: str, entry: Entry) -> str:
    """Returns the path of a file relative to its dataset: `labels.txt`, `contents/NAME.parquet`."""
    return entry.path.removeprefix(join(output, ""))


def is_of_dataset(name: str, dataset: str = "") -> bool:
    """Whether a conversion to `dataset` writes a file with this name, except the manifest.

    Args:
        name: name of the file, as `name_in_dataset` returns it.
        dataset: name of the dataset; an empty string for any dataset.
    """
    if name in _FILES_BESIDE:
        return True
    owner = _find_owner(name)
    return owner is not None and dataset in ("", owner)


def _find_owner(name: str) -> str | None:
    """Returns the dataset named in the file name of a shard or its contents; None for others."""
    in_contents = name.removeprefix(f"{CONTENTS_FOLDER}/")
    if in_contents != name and in_contents.endswith(CONTENTS_SUFFIX):
        name = in_contents.removesuffix(CONTENTS_SUFFIX) + SUFFIXES["none"]
    parsed = parse_file_name(name)
    return parsed[0] if parsed else None
