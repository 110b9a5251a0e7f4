"""Exports a dataset to formats of other programs, on any of Beam's runners."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import BaseDataset, read_unchanged_manifest
from beam_tfr.dataset.conditions import parse_conditions
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.splits import ShardPart, select_examples
from beam_tfr.engine import cloud
from beam_tfr.engine.failures import Outcome
from beam_tfr.engine.runs import follow, on_interrupt, translated
from beam_tfr.exports.export_formats import EXPORT_FORMATS, ExportJob, check_format
from beam_tfr.exports.shard import Shard, names_of
from beam_tfr.launch.flags import choose_for, parse_beam_flags, run_on
from beam_tfr.launch.updating import held
from beam_tfr.output import claim
from beam_tfr.schema import differences
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.schema.features import MASK_KEY
from beam_tfr.transforms.shards import ExportShards

_MARK = "export.json"  # what an export is made from, whether it is complete, and its size then
_OUTCOME = Outcome(
    "the export is not complete", "run the same command again to resume from the finished shards"
)


class Export(NamedTuple):
    """A complete export.

    Attributes:
        folder: its folder.
        format: one of `exports.export_formats.EXPORT_FORMATS`.
        images: number of images, or other records.
        splits: split -> number of them.
        load: a line of Python that opens it.
        fresh: False if it was complete already.
    """

    folder: str
    format: str
    images: int
    splits: Mapping[str, int]
    load: str
    fresh: bool


def export(
    folder: str,
    output: str,
    form: str,
    *,
    split: str | None = None,
    where: str | Mapping[str, object] | None = None,
    beam_flags: Sequence[str] = (),
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Export:
    """Exports a dataset, or a part of it; see `beam_tfr.export` for the other arguments, and
    errors.

    Args:
        form: one of `exports.export_formats.EXPORT_FORMATS`.
        beam_flags: Beam's own options, as on a command line.
        progress: called while records are searched and written.
        say: called with messages about what is left out and a remote job, one line each.
    """
    folder = storage.check_path(folder)
    output = storage.check_path(output)
    if not output:
        raise UsageError("give an empty folder for the export", option="output", value=output)
    output = output.rstrip("/") or "/"
    beam_options = parse_beam_flags(beam_flags)
    wanted = parse_conditions(where)
    runner = choose_for("export", (folder, output), beam_options, beam_flags)
    cloud.use(beam_options)
    dataset = read_manifest(folder)
    pairs = [companion.key for companion in dataset.names.companions if companion.key != MASK_KEY]
    if pairs:
        say(f"images of pairs are left out: {', '.join(pairs)}")
    check_format(dataset, form)
    if f"{storage.real_path(output)}/".startswith(f"{storage.real_path(folder)}/"):
        raise UsageError(f"{output}: must not be in the dataset")
    progress(Progress("searching", 0))
    counts = _count(dataset, split, wanted)
    splits = dict[str, int]()
    for part, images in counts.items():
        name = names_of(part.file)[2]
        splits[name] = splits.get(name, 0) + images
    total = sum(splits.values())
    load = EXPORT_FORMATS[form].load.format(name=dataset.name, output=output)
    result = Export(output, form, total, splits, load, fresh=True)
    about = {
        "name": dataset.name,
        "dataset_digest": dataset.dataset_digest,
        "splits": [*splits],
        "where": wanted,
    }
    about["format"] = form
    if _is_complete(output, about):
        return result._replace(fresh=False)

    def tick(counters: Mapping[str, int]) -> None:
        shards, done, read = (
            counters.get(f"exported-{unit}", 0) for unit in ("shards", "images", "bytes")
        )
        progress(
            Progress(
                "exporting", min(done, total), total, min(shards, len(counts)), len(counts), read
            )
        )

    job = ExportJob(BaseDataset(folder, dataset.fields["manifest_digest"]), wanted, output, form)
    with on_interrupt(), held(output, beam_options) as run_id, translated(_OUTCOME):
        if _is_complete(output, about):  # by another run, meanwhile
            return result._replace(fresh=False)
        _write_mark(output, about, complete=False)
        follow(run_on(runner, ExportShards(job, counts), beam_options, say=say), tick, _OUTCOME)
        read_unchanged_manifest(folder, job.base.digest)
        files = {job.path(part): images for part, images in counts.items()}
        there = {*storage.list_folder(next(iter(files)).rpartition("/")[0])}
        lost = [path for path in files if path.rpartition("/")[2] not in there]
        if lost:
            raise RunError(
                f"the engine reports success, but {lost[0]} is missing; run the same command again"
            )
        EXPORT_FORMATS[form].complete(dataset, output, files)
        _write_mark(output, about, complete=True, **_size(output))
        claim.remove_work_folder(output, run_id)
    return result


def _write_mark(output: str, about: Mapping[str, Any], **state: int) -> None:
    data = json.dumps({**about, **state}, indent=1, sort_keys=True).encode() + b"\n"
    storage.write_bytes(storage.join(output, _MARK), data, scratch=storage.work_path(output, ""))


def _size(output: str) -> dict[str, int]:
    """The number of files in an export but its mark and hidden ones, and their bytes."""
    paths = (
        (entry.path.removeprefix(output), entry.size_bytes)
        for entry in storage.walk(output, lambda _: True)
    )
    sizes = [size for path, size in paths if "/." not in path and path != f"/{_MARK}"]
    return {"files": len(sizes), "bytes": sum(sizes)}


def _is_complete(output: str, about: Mapping[str, Any]) -> bool:
    """Whether a folder holds an export that is made from this; False if the folder is empty, or
    holds a part of it.

    Raises:
        UsageError: it holds something else, or files were changed since.
    """
    path = storage.join(output, _MARK)
    work = storage.work_path(output, "")
    if not storage.find(path):
        with contextlib.suppress(NotADirectoryError):  # below a file, where the lock cannot be made
            for entry in storage.walk(output, lambda _: True):
                if not entry.path.startswith(work):
                    raise UsageError(
                        f"{output} holds other files, such as {entry.path}; give an empty folder"
                    )
        return False
    try:
        found = dict(json.loads(storage.read_bytes(path)))
    except (ValueError, TypeError):
        raise UsageError(f"{path} is not of an export; give an empty folder") from None
    different = differences.describe_changes({name: found.get(name) for name in about}, about)
    if different:
        raise UsageError(f"{output} holds another export; give an empty folder:{different}")
    if found.get("complete") and (now := _size(output)) != (
        then := {name: found.get(name) for name in now}
    ):
        changes = differences.describe_changes(then, now)
        raise UsageError(
            f"{output} was changed since it was complete; give an empty folder to export again:{changes}"
        )
    return bool(found.get("complete"))


def _count(dataset: Manifest, split: str | None, where: Mapping[str, str]) -> dict[ShardPart, int]:
    """The number of records of each shard that are exported, without shards that have none.

    Raises:
        UsageError: there is no such split or column, or no record fits.
    """
    names = [name for name, entry in dataset.splits.items() if entry.num_examples]
    chosen = names if split is None else [term.strip() for term in split.split("+")]
    if not {*chosen} <= {*names}:
        allowed = f'must name whole splits with records, several as "train+test"; there are: {", ".join(names)}'
        raise UsageError(allowed, option="split", value=split)
    parts = select_examples(dataset, "+".join(chosen)).parts
    if not where:
        return {part: part.take for part in parts}
    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        found = pool.map(lambda part: len(Shard(dataset, part, where).wanted), parts)
        counts = {part: images for part, images in zip(parts, found, strict=True) if images}
    if not counts:
        raise UsageError(
            "matches no record", option="where", value=",".join(map("=".join, where.items()))
        )
    return counts
