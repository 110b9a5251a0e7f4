"""Writes the files next to the shards, and publishes the dataset, for WriteManifest."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.copies.images import choose_columns, join_images
from beam_tfr.copies.summary import is_summarized, summarize_images
from beam_tfr.dataset.history import Update, add_update
from beam_tfr.dataset.manifest import (
    Manifest,
    labels_text,
    manifest_bytes,
    parse_manifest,
    read_manifest,
)
from beam_tfr.dataset.metadata import metadata_files
from beam_tfr.dataset.metadata.card import MAX_CARD_BYTES, is_own_card
from beam_tfr.output import claim, lock, rejects, switch
from beam_tfr.output.claim import Claim
from beam_tfr.output.manifest_fields import add_duplicates, build_manifest_fields
from beam_tfr.output.shard_totals import (
    CommittedShard,
    SplitTotals,
    list_shards_with_file,
    reject_digests,
)
from beam_tfr.output.sidecars import locate_file, unique_name
from beam_tfr.output.switch import BuiltFile, Switch, is_of_dataset, list_dataset, name_in_dataset
from beam_tfr.records.contents_file import parse_contents
from beam_tfr.schema.dataset import (
    CARD_FILE,
    HISTORY_FILE,
    LABELS_FILE,
    MANIFEST_FILE,
    REJECTS_FILE,
    SUMS_FILE,
    sha256_hex,
)
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.naming import contents_name
from beam_tfr.schema.plan import Plan, WrittenFile, sum_counts
from beam_tfr.storage import Entry, join, work_path

_READERS = 32  # threads that read contents; on gs://, each makes a request


def find_published(
    folder: str, plan: Plan, totals: Mapping[str, SplitTotals], claimed: Claim | None
) -> Manifest | None:
    """Returns the dataset with these totals if an earlier attempt published it, or None.

    Args:
        folder: the output folder.
        plan: the plan of the run.
        totals: result of `shard_totals.merge_totals`.
        claimed: the claim of the run, if the run still has a claim.

    Raises:
        RunError: the folder holds a different dataset.
    """
    current = storage.find(join(folder, MANIFEST_FILE))
    if current is None:
        return None
    if claimed is not None and current.generation == claimed.replaces:
        return None
    published = read_manifest(folder)
    fields = build_manifest_fields(
        plan,
        totals,
        rejects_sha256=published.fields["rejects"]["sha256"],
        duplicates=published.duplicates,
    )
    if published.fields["manifest_digest"] != fields["manifest_digest"]:
        raise RunError(
            f"another run published a different dataset into {folder} while this one ran"
        )
    return published


class _FilesBeside:
    """The files next to the shards, while they are written to the work folder."""

    def __init__(self, folder: str) -> None:
        self._work_folder = work_path(folder, "")
        self._built: dict[str, str] = {}  # name in the dataset -> name in the work folder

    def new_path(self, name: str) -> str:
        """Returns the work-folder path for a file with this name in the dataset."""
        self._built[name] = unique_name(name.rpartition("/")[2])
        return join(self._work_folder, self._built[name])

    def write(self, name: str, data: bytes) -> None:
        """Writes a file that will have this name in the dataset."""
        storage.write_bytes(self.new_path(name), data, scratch=self._work_folder)

    def find_files(self) -> list[BuiltFile]:
        """Returns all files, in the order in which they were written.

        Raises:
            RunError: a file is missing.
        """
        files = list[BuiltFile]()
        for name, built in self._built.items():
            path = join(self._work_folder, built)
            entry = storage.find(path)
            if entry is None:
                raise RunError(f"{path} was removed by another program; run the same command again")
            files.append(BuiltFile(name, built, entry.size_bytes, entry.generation))
        return files


def publish_dataset(
    folder: str,
    plan: Plan,
    totals: Mapping[str, SplitTotals],
    claimed: Claim | None,
    *,
    check_lock: Callable[[], None] = lambda: None,
    update: Update | None = None,
) -> Manifest:
    """Publishes a dataset: checks the files of all shards, writes the other files, and switches.

    Args:
        folder: the output folder, with the sidecars of its shards.
        plan: the plan of the run.
        totals: result of `shard_totals.merge_totals`.
        claimed: the claim of the run.
        check_lock: raises an error if this run has lost the folder.
        update: how the dataset in the folder is updated; if nothing changed, the dataset stays as
            it is.

    Raises:
        RunError: another run has published or taken over, or a file has changed since this run
            wrote it.
    """
    if claimed is None:
        raise lock.takeover_error(folder)
    shards = list_shards_with_file(totals)
    contents = _list_contents(shards)
    shard_files = [_built_file(shard.file, shard.written) for shard in shards]
    shard_files += [_built_file(name, file) for name, file in contents.items()]
    existing = list_dataset(folder)
    _check_as_written(folder, shard_files, existing)

    beside = _FilesBeside(folder)
    rejects_path = beside.new_path(REJECTS_FILE)
    rejects_sha256 = rejects.write_rejects(rejects_path, folder, reject_digests(totals))
    if plan.labels is not None:
        beside.write(LABELS_FILE, labels_text(plan.labels))
    fields = build_manifest_fields(plan, totals, rejects_sha256=rejects_sha256)
    fields = add_duplicates(fields, _find_duplicates(folder, fields, shards))
    data = manifest_bytes(fields)
    dataset = parse_manifest(data, folder)
    metadata = build_metadata(dataset)
    for name, text in metadata.items():
        beside.write(name, text)
    checksums = [(name, file.sha256) for name, file in contents.items()]
    beside.write(SUMS_FILE, format_checksums(checksums, metadata))
    if update:
        before = read_manifest(update.folder or folder)
        is_in_place = not update.folder
        is_unchanged = before.fields == fields and not any(file.built for file in shard_files)
        if is_in_place and is_unchanged:
            # Without a plan, `claim.remove_work_folder` removes all written files.
            storage.delete(work_path(folder, claim.PLAN_FILE))
            return before
        counts = sum_counts(split.counts for split in totals.values())
        beside.write(HISTORY_FILE, add_update(before, fields, counts, update))
    beside.write(MANIFEST_FILE, data)  # moved last

    owner = "" if claimed.overwrite else plan.name
    old = _list_old_files(folder, existing, metadata, owner)
    files = [*shard_files, *beside.find_files()]
    new = Switch(replaces=claimed.replaces, old=old, files=files)
    switch.make_switch(folder, new, check_lock=check_lock)
    return dataset


def _find_duplicates(
    folder: str, fields: dict[str, Any], shards: Sequence[CommittedShard]
) -> dict[str, Any]:
    """Returns the facts about copies for the manifest, from the contents of the shards.

    Args:
        fields: the content of the manifest without copies.
        shards: the shards that have a file, in the order of the manifest.
    """
    dataset = parse_manifest(manifest_bytes(fields), folder)
    if not is_summarized(dataset):
        return {}
    schema = dataset.contents_schema()
    columns = choose_columns(dataset)

    def read(file: tuple[str, WrittenFile, int]) -> Any:
        name, written, num_rows = file
        path = locate_file(folder, name, written.built)
        data = storage.read_bytes(path)
        return parse_contents(data, schema, path=path, num_rows=num_rows, columns=columns)

    files = list[tuple[str, WrittenFile, int]]()
    for shard in shards:
        if shard.contents:
            files.append((contents_name(shard.file), shard.contents, shard.num_examples))
    with ThreadPoolExecutor(_READERS) as pool:
        images = join_images(dataset, pool.map(read, files))
    return summarize_images(dataset, images)


def _list_contents(shards: Iterable[CommittedShard]) -> dict[str, WrittenFile]:
    """Returns name -> file for the contents of the shards."""
    return {contents_name(shard.file): shard.contents for shard in shards if shard.contents}


def _built_file(name: str, file: WrittenFile) -> BuiltFile:
    return BuiltFile(name, file.built, file.num_bytes, file.generation)


def _check_as_written(folder: str, files: Sequence[BuiltFile], existing: Sequence[Entry]) -> None:
    """Checks by size and generation that the files of all shards are as they were written.

    Args:
        existing: the files in the output folder; this function lists the work folder.

    Raises:
        RunError: a file is different.
    """
    entries = [*existing, *storage.list_files(work_path(folder, ""))]
    states = {entry.path: (entry.size_bytes, entry.generation) for entry in entries}
    wrong = list[str]()
    for file in files:
        path = locate_file(folder, file.name, file.built)
        if states.get(path) != (file.num_bytes, file.generation):
            wrong.append(file.name)
    if wrong:
        raise RunError(
            f"{counted(len(wrong), 'finished shard')} missing or not as written, such as "
            f"{wrong[0]}: another run or program is changing files in {work_path(folder, '')}. "
            "Nothing is published; run the same command again to rewrite these shards"
        )


def _list_old_files(
    folder: str, existing: Iterable[Entry], metadata: Collection[str], owner: str
) -> list[tuple[str, int]]:
    """Lists the names and generations of the old dataset's files, which are replaced or removed.

    Args:
        metadata: names of the new files for other programs.
        owner: name of the dataset whose files are removed; an empty string for any dataset.
    """
    old = list[tuple[str, int]]()
    for entry in existing:
        name = name_in_dataset(folder, entry)
        if name in metadata or is_of_dataset(name, owner):
            old.append((name, entry.generation))
    return old


def build_metadata(dataset: Manifest) -> dict[str, bytes]:
    """Builds the files for other programs; returns name -> content.

    Leaves out README.md if the user wrote one.
    """
    files = metadata_files(dataset)
    card = storage.read_existing(join(dataset.folder, CARD_FILE), MAX_CARD_BYTES)
    if card is not None and not is_own_card(card):
        del files[CARD_FILE]
    return files


def format_checksums(contents: Iterable[tuple[str, str]], metadata: Mapping[str, bytes]) -> bytes:
    """Builds the content of `SUMS_FILE`.

    Args:
        contents: (name, SHA-256) of the contents of each shard.
        metadata: result of `build_metadata`.
    """
    lines = [f"{sha256}  {name}\n" for name, sha256 in contents]
    lines += [f"{sha256_hex(data)}  {name}\n" for name, data in metadata.items()]
    return "".join(lines).encode()
