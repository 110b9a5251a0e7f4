"""Exports a dataset to formats of other programs, on any of Beam's runners."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions
from apache_beam.runners.runner import PipelineRunner

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataflow import checks
from beam_tfr.dataset import manifest
from beam_tfr.dataset.base import Base, read_again
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import select
from beam_tfr.engine import cloud
from beam_tfr.engine.failures import Outcome, translate
from beam_tfr.engine.runs import follow, on_interrupt
from beam_tfr.launch.flags import choose_runner, parse_beam_flags, run_on
from beam_tfr.launch.updating import held
from beam_tfr.options import ConvertOptions
from beam_tfr.output import claim
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.schema.features import MASK_KEY
from examples.export.conditions import conditions, matching
from examples.export.formats import FORMATS, check, path_of
from examples.export.mark import is_complete, write_mark
from examples.export.transform import ExportShards

_OUTCOME = Outcome("the export is not complete", "run the same command again to resume from the finished shards")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """A complete export.

    Attributes:
        folder: its folder.
        format: one of `formats.FORMATS`.
        splits: split -> number of images, or other records.
        fresh: False if it was complete already.
    """

    folder: str
    format: str
    splits: Mapping[str, int]
    fresh: bool

    @property
    def images(self) -> int:
        return sum(self.splits.values())


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
    """Exports a dataset, or a part of it, with the bytes of its images as they are.

    The same call resumes a run that was interrupted or failed, and returns at once if the export is complete.

    Args:
        folder: folder of the dataset, local or gs://.
        output: folder of the export, local or gs://, which must be empty.
        form: one of `formats.FORMATS`.
        split: name of a split, or of several, "train+test"; None for all.
        where: exports only records with this value: "label=hat", or several that must all fit, {"label": "hat"}. The
            names are those of columns of the contents, and of features, of which the last part is enough.
        beam_flags: Beam's own options, as on a command line.
        progress: called while records are searched and written.
        say: called with messages about a remote job, one line each.

    Raises:
        UsageError: the call is wrong, no record fits, or the output holds something else.
        DataError: the dataset is damaged; or the key of an image cannot be the name of a file.
        RunError: the run failed, or another dataset replaced this one; the same call resumes.
        InterruptedRunError: Ctrl-C.
    """
    folder, output = storage.check_path(folder), storage.check_path(output, option="output").rstrip("/")
    beam_options, wanted = parse_beam_flags(beam_flags), conditions(where)
    runner = _choose_runner(folder, output, beam_options, beam_flags)
    cloud.use(beam_options)
    dataset = manifest.read(folder)
    if pairs := [companion.key for companion in dataset.names.companions if companion.key != MASK_KEY]:
        say(f"images of pairs are left out: {', '.join(pairs)}")
    check(dataset, form)
    if f"{output}/".startswith(f"{folder.rstrip('/')}/"):
        raise UsageError("must not be in the dataset", option="output", value=output)
    about = {"name": dataset.name, "dataset_digest": dataset.dataset_digest, "format": form, "where": wanted}
    counts = _counts(dataset, split, wanted, progress)
    about["splits"] = [*counts]
    shards = [(name, number) for name, numbers in counts.items() for number, images in enumerate(numbers) if images]
    images = {name: sum(numbers) for name, numbers in counts.items()}
    total = sum(images.values())
    result = Export(folder=output, format=form, splits=images, fresh=False)
    if is_complete(output, about):
        return result

    def tick(counters: Mapping[str, int]) -> None:
        written, done, read = (counters.get(f"exported-{of}", 0) for of in ("shards", "images", "bytes"))
        progress(Progress("exporting", min(done, total), total, min(written, len(shards)), len(shards), read))

    with on_interrupt(), held(output, beam_options) as run_id:
        is_complete(output, about)  # another run may have begun meanwhile
        write_mark(output, about, complete=False)
        base = Base(folder, dataset.fields["manifest_digest"])
        step = ExportShards(base, shards, wanted, output, form)
        follow(run_on(runner, step, beam_options, say=say), tick, _OUTCOME)
        read_again(folder, base.digest)
        try:
            _check_written([path_of(dataset, dataset.splits[name].shards[at], output, form) for name, at in shards])
            FORMATS[form].complete(dataset, output, counts)
            write_mark(output, about, complete=True)
        except OSError as error:
            raise translate(error, _OUTCOME) from error
        claim.finish(output, run_id)
    return dataclasses.replace(result, fresh=True)


def _choose_runner(
    folder: str, output: str, beam_options: PipelineOptions, flags: Sequence[str]
) -> PipelineRunner | None:
    """The runner, as `launch.flags.choose_runner` chooses it; None for Dataflow.

    Raises:
        UsageError: there is no such runner, a flag is wrong, or Dataflow's workers cannot reach a folder.
    """
    if not checks.is_wanted(beam_options):
        return choose_runner(beam_options, flags)
    for path in (folder, output):
        if not storage.is_gcs(path):
            raise UsageError(f"{path}: must be on gs://, where Dataflow's workers can reach it")
    if beam_options.view_as(GoogleCloudOptions).template_location or beam_options.view_as(TestOptions).dry_run:
        raise UsageError("`template_location=` and `dry_run=` export nothing")
    checks.check(ConvertOptions(input=(f"{folder.rstrip('/')}/*",), output=output), beam_options)
    return None


def _check_written(paths: Sequence[str]) -> None:
    """Checks that there is a file for each shard.

    Raises:
        RunError: one is missing.
    """
    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        for path, found in zip(paths, pool.map(storage.find, paths), strict=True):
            if found is None:
                raise RunError(f"the engine reports success, but {path} is missing; run the same command again")


def _counts(
    dataset: Manifest, split: str | None, where: Mapping[str, str], progress: Callable[[Progress], object]
) -> dict[str, list[int]]:
    """The number of records of each shard that are exported, by split.

    Raises:
        UsageError: there is no such split or column, or no record fits.
    """
    if split and "[" in split:
        raise UsageError("must name whole splits", option="split", value=split)
    chosen = select(dataset, split).splits if split else dataset.splits.values()
    splits = {name: of for name, of in dataset.splits.items() if of in chosen and of.shards}
    manifest.check_shards(dataset, splits.values())
    if not where:
        return {name: [entry.num_examples for entry in of.shards] for name, of in splits.items()}
    found, total = dict[str, list[int]](), sum(of.num_examples for of in splits.values())
    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        for name, of in splits.items():
            found[name] = [*pool.map(lambda entry: len(matching(dataset, entry, where)), of.shards)]
            progress(Progress("searching", sum(splits[name].num_examples for name in found), total))
    if not any(map(any, found.values())):
        raise UsageError("matches no record", option="where", value=",".join(map("=".join, where.items())))
    return {name: numbers for name, numbers in found.items() if any(numbers)}
