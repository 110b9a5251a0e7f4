"""Exports a dataset to formats of other programs, on any of Beam's runners."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset import manifest
from beam_tfr.dataset.base import Base, read_again
from beam_tfr.dataset.conditions import conditions
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import Part, select
from beam_tfr.engine import cloud
from beam_tfr.engine.failures import Outcome
from beam_tfr.engine.runs import follow, on_interrupt, translated
from beam_tfr.exports.formats import FORMATS, Job, check
from beam_tfr.exports.shard import Shard, names_of
from beam_tfr.launch.flags import choose_for, parse_beam_flags, run_on
from beam_tfr.launch.updating import held
from beam_tfr.output import claim
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.schema.features import MASK_KEY
from beam_tfr.transforms.shards import ExportShards

_MARK = "export.json"  # what an export is made from, and whether it is complete
_OUTCOME = Outcome("the export is not complete", "run the same command again to resume from the finished shards")


class Export(NamedTuple):
    """A complete export.

    Attributes:
        folder: its folder.
        images: number of images, or other records.
        splits: split -> number of them.
        fresh: False if it was complete already.
    """

    folder: str
    images: int
    splits: Mapping[str, int]
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
    """Exports a dataset, or a part of it; see `beam_tfr.export` for the other arguments, and errors.

    Args:
        form: one of `exports.formats.FORMATS`.
        beam_flags: Beam's own options, as on a command line.
        progress: called while records are searched and written.
        say: called with messages about what is left out and a remote job, one line each.
    """
    folder, output = storage.check_path(folder), storage.check_path(output, option="output").rstrip("/") or "/"
    beam_options, wanted = parse_beam_flags(beam_flags), conditions(where)
    runner = choose_for("export", (folder, output), beam_options, beam_flags)
    cloud.use(beam_options)
    dataset = manifest.read(folder)
    if pairs := [companion.key for companion in dataset.names.companions if companion.key != MASK_KEY]:
        say(f"images of pairs are left out: {', '.join(pairs)}")
    check(dataset, form)
    if f"{output}/".startswith(f"{folder.rstrip('/')}/"):
        raise UsageError("must not be in the dataset", option="output", value=output)
    progress(Progress("searching", 0))
    counts, splits = _count(dataset, split, wanted), dict[str, int]()
    for part, images in counts.items():
        name = names_of(part.file)[2]
        splits[name] = splits.get(name, 0) + images
    total = sum(splits.values())
    about = {"name": dataset.name, "dataset_digest": dataset.dataset_digest, "splits": [*splits], "where": wanted}
    states = ({**about, "format": form, "complete": state} for state in (False, True))
    begun, complete = (json.dumps(state, indent=1, sort_keys=True).encode() + b"\n" for state in states)
    mark, scratch = storage.join(output, _MARK), storage.work_path(output, "")
    if _is_complete(output, begun, complete):
        return Export(output, total, splits, fresh=False)

    def tick(counters: Mapping[str, int]) -> None:
        shards, done, read = (counters.get(f"exported-{unit}", 0) for unit in ("shards", "images", "bytes"))
        progress(Progress("exporting", min(done, total), total, min(shards, len(counts)), len(counts), read))

    job = Job(Base(folder, dataset.fields["manifest_digest"]), wanted, output, form)
    with on_interrupt(), held(output, beam_options) as run_id, translated(_OUTCOME):
        _is_complete(output, begun, complete)  # another run may have begun meanwhile
        storage.write_bytes(mark, begun, scratch=scratch)
        follow(run_on(runner, ExportShards(job, counts), beam_options, say=say), tick, _OUTCOME)
        read_again(folder, job.base.digest)
        files = {job.path(part): images for part, images in counts.items()}
        there = {*storage.list_folder(next(iter(files)).rpartition("/")[0])}
        if lost := [path for path in files if path.rpartition("/")[2] not in there]:
            raise RunError(f"the engine reports success, but {lost[0]} is missing; run the same command again")
        FORMATS[form].complete(dataset, output, files)
        storage.write_bytes(mark, complete, scratch=scratch)
        claim.finish(output, run_id)
    return Export(output, total, splits, fresh=True)


def _is_complete(output: str, begun: bytes, complete: bytes) -> bool:
    """Whether a folder holds an export, given its marks; False if the folder is empty, or holds a part of it.

    Raises:
        UsageError: it holds something else.
    """
    path, work = storage.join(output, _MARK), storage.work_path(output, "")
    found = storage.read_bytes(path) if storage.find(path) else None
    if found in (begun, complete):
        return found == complete
    for entry in storage.walk(output, lambda _: True):
        if not entry.path.startswith(work):
            problem = f"holds another export or other files, such as {path if found else entry.path}"
            raise UsageError(f"{problem}; give an empty folder", option="output", value=output)
    return False


def _count(dataset: Manifest, split: str | None, where: Mapping[str, str]) -> dict[Part, int]:
    """The number of records of each shard that are exported, without shards that have none.

    Raises:
        UsageError: there is no such split or column, or no record fits.
    """
    if split and "[" in split:
        raise UsageError("must name whole splits", option="split", value=split)
    chosen = select(dataset, split or "+".join(name for name, of in dataset.splits.items() if of.num_examples))
    if not where:
        return {part: part.take for part in chosen.parts}
    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        found = pool.map(lambda part: len(Shard(dataset, part, where).wanted), chosen.parts)
        counts = {part: images for part, images in zip(chosen.parts, found, strict=True) if images}
    if not counts:
        raise UsageError("matches no record", option="where", value=",".join(map("=".join, where.items())))
    return counts
