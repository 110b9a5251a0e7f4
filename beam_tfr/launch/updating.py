"""Updates a dataset: writes the one that a fresh conversion would write, and converts only what is
new or changed."""

import contextlib
import dataclasses
import functools
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from apache_beam.options.pipeline_options import PipelineOptions

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataflow import checks, jobs
from beam_tfr.dataset.base import INPUTS, BaseDataset, RecordBoxes, planned_shards, restore_options
from beam_tfr.dataset.history import Update
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.engine.failures import Outcome
from beam_tfr.launch.flags import parse_beam_flags
from beam_tfr.launch.results import Result
from beam_tfr.launch.starting import start
from beam_tfr.options import ConvertOptions, ImageOptions
from beam_tfr.options.run import UpdateOptions
from beam_tfr.options.table import FILES, LIMITS, RUN, options_of
from beam_tfr.options.tabular import BOX_OPTIONS
from beam_tfr.output import claim, codec_versions, lock, removed, sidecars, switch
from beam_tfr.output.removed import Removed, Selection
from beam_tfr.pipeline import Convert
from beam_tfr.planning.drafts import PlanSettings
from beam_tfr.schema.dataset import REMOVED_FILE, SWITCH_FILE
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.features import companions_of, features_of, has_boxes
from beam_tfr.sources import Input, open_source

_OUTCOME = Outcome("the dataset is whole, as it was", "run the same command again: it resumes")
_KEPT_CODECS = "kept_codecs"  # in the options of a manifest: versions that made some of the records
_NEEDS_IMAGES = "needs the images: give `input=` or `table=` too"


def update(
    folder: str,
    given: Mapping[str, Any],
    how: UpdateOptions,
    beam_flags: Sequence[str] = (),
    *,
    command: str = "update",
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Updates a dataset; returns when it is complete.

    Args:
        folder: folder of the dataset, local or gs://.
        given: options of `convert`: the input, and those that are to differ from the dataset's.
            Without an input the images are those of the dataset, and only options of files may
            differ.
        how: the options of `update`.
        command: how the history calls the update.
        beam_flags, progress, say: see `start`.

    Raises:
        UsageError: the call is wrong, or the codecs have other versions than those of the dataset.
        DataError, RunError, InterruptedRunError: as for a conversion; the dataset is then as it
            was.
    """
    given = {name: value for name, value in given.items() if value not in (None, "", (), [])}
    fixed = [name for name in ("output", "name", "overwrite", "no_wait") if name in given]
    if fixed:
        raise UsageError(
            "is not for an update: leave it out", option=fixed[0], value=given[fixed[0]]
        )
    dataset, _ = read_to_change(folder, beam_flags)
    options = restore_options(
        dataset, {**given, "overwrite": True}, _placeholder(dataset, given, how)
    )
    opened = functools.partial(_open, dataset=dataset, given=given)
    make = functools.partial(_make, dataset=dataset, how=how, command=command, say=say)
    done = start(
        options,
        beam_flags,
        open_input=opened,
        make=make,
        outcome=_OUTCOME,
        progress=progress,
        say=say,
    )
    return cast(Result, done)


def remove(
    folder: str,
    wanted: Selection,
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Takes images down: removes their records and all else about them, except hashes that keep
    them from coming back.

    Needs no input. The hashes stay in removed.txt, and later conversions and updates into the
    folder obey them.

    Args:
        folder: folder of the dataset, local or gs://.
        wanted: what to remove.
        beam_flags, progress, say: see `start`.

    Raises:
        UsageError: the call is wrong.
        DataError: no image has the wanted value.
        DataError, RunError, InterruptedRunError: as for `update`.
    """
    dataset, beam_options = read_to_change(folder, beam_flags)
    if dataset.options["encoding"] == "row":
        problem = "holds the rows of a table: remove the rows from the table, and convert it again with `overwrite=`"
        raise UsageError(f"{dataset.folder} {problem}")
    hashes, images, missing = removed.find_images(dataset, wanted, progress or (lambda _: None))
    if not any(hashes):
        raise DataError(f"nothing of what is given is in {dataset.folder}; nothing was removed")
    if images == dataset.counts["matched"]:
        raise UsageError(f"these are all images of {dataset.folder}: delete the folder")
    if missing:
        problem = (
            f"{len(missing):,} of those given are not in {dataset.folder}, such as {missing[0]}"
        )
        say(f"{problem}; they are kept out too")
    before = removed.read_removed(dataset.folder)
    total = Removed(before.keys | hashes.keys, before.sources | hashes.sources)
    with held(dataset.folder, beam_options):
        path = storage.join(dataset.folder, REMOVED_FILE)
        scratch = storage.work_path(dataset.folder, "")
        storage.write_bytes(path, total.to_bytes(), scratch=scratch)
    if not images:
        return Result(manifest=dataset, seconds=0.0, fresh=False)
    how = UpdateOptions(codecs="keep")
    return update(folder, {}, how, beam_flags, command="remove", progress=progress, say=say)


def read_to_change(folder: str, beam_flags: Sequence[str]) -> tuple[Manifest, PipelineOptions]:
    """The manifest of a dataset, after a run that was killed at its end is completed; and Beam's
    options.

    Raises:
        UsageError: the call is wrong.
        DataError: there is no manifest, or it is damaged.
    """
    beam_options = parse_beam_flags(beam_flags)
    folder = storage.check_path(folder)
    if checks.is_only_form(beam_options):
        raise UsageError("`template_location=` and `dry_run=` change no dataset")
    if {SWITCH_FILE, claim.PLAN_FILE} & {*storage.list_folder(storage.work_path(folder, ""))}:
        with held(folder, beam_options) as run_id:
            switch.complete_switch(folder)
            claim.finish_killed_run(folder, run_id)
    return read_manifest(folder), beam_options


@contextlib.contextmanager
def held(folder: str, beam_options: PipelineOptions) -> Iterator[str]:
    """Holds the lock of a folder; gives the id of the holder."""
    run_id = uuid.uuid4().hex
    with lock.hold_lock(folder, run_id, job_state=functools.partial(jobs.job_state, beam_options)):
        yield run_id


def _placeholder(dataset: Manifest, given: Mapping[str, Any], how: UpdateOptions) -> dict[str, Any]:
    """Options that stand for the input if none is given."""
    if any(given.get(name) for name in INPUTS):
        return {}
    if how.compare != "auto":
        message = "has no effect without `input=` or `table=`, as nothing is compared"
        raise UsageError(message, option="compare", value=how.compare)
    rejects = {
        "max_rejects": 1.0,
        "allow_empty": (*dataset.class_names, *dataset.splits),
    }  # accepted when it was made
    return {"input" if "layout" in dataset.options else "table": dataset.folder, **rejects}


def _open(options: ConvertOptions, *, dataset: Manifest, given: Mapping[str, Any]) -> Input:
    """The input: what is listed, or the images of the dataset, as they were listed for it."""
    if any(given.get(name) for name in INPUTS):
        source = open_source(options, dataset.options.get("classes"))
        if source.plan.first:
            plan = source.plan
        else:
            plan = dataclasses.replace(source.plan, first=_kept_ids(dataset))
        return dataclasses.replace(source, plan=plan)
    limit = dataset.options.get("limit")
    if limit is not None and options.seed != dataset.options["seed"]:
        message = f"chooses other images, as the dataset has `limit={limit}`: {_NEEDS_IMAGES}"
        raise UsageError(message, option="seed", value=options.seed)
    base = BaseDataset(dataset.folder, dataset.fields["manifest_digest"], "names")
    specs = options_of(ConvertOptions)
    allowed = {name for name, option in specs.items() if option.group in (FILES, RUN)}
    wrong = [name for name in given if name not in allowed]
    if wrong:
        raise UsageError(_NEEDS_IMAGES, option=wrong[0], value=given[wrong[0]])
    now = {
        name: getattr(options, name)
        for name in allowed
        if name in dataset.options or (specs[name].implied and options.is_given(name))
    }
    settings = PlanSettings(
        name=options.name,
        suffix=options.suffix,
        options={**dataset.options, **now, **options.stored_compression},
        labelled=dataset.names.label in dataset.features,
        first=_kept_ids(dataset),
    )
    return Input(root="", origin=base, plan=settings)


def _kept_ids(dataset: Manifest) -> Sequence[str]:
    """The classes of a dataset whose ids are those of an older one; none if they are in order."""
    names = [*dataset.class_names]
    numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return [] if names == sorted(names) or (numbers and names == sorted(names, key=int)) else names


def _make(
    options: ConvertOptions,
    source: Input,
    *,
    dataset: Manifest,
    how: UpdateOptions,
    command: str,
    say: Callable[[str], object],
) -> Convert:
    base, notes = _choose_base(dataset, source, how, say)
    if isinstance(source.origin, BaseDataset) and base is None:
        raise UsageError(f"{dataset.folder}: {_NEEDS_IMAGES}")
    if notes:
        settings = dataclasses.replace(source.plan, options={**source.plan.options, **notes})
        source = dataclasses.replace(source, plan=settings)
    step = Convert(options, source, base=base)
    step.update = Update(command, counted=base is not None)
    return step


def _choose_base(
    dataset: Manifest, source: Input, how: UpdateOptions, say: Callable[[str], object]
) -> tuple[BaseDataset | None, dict[str, Any]]:
    """What the update starts from, None to convert all; and what the manifest notes."""
    now = source.plan.options
    before = dataset.options
    everything = "all images are converted again"
    if now["encoding"] == "row":
        return None, {}
    specs = options_of(ImageOptions)
    changed = [
        name for name in specs if specs[name].changes_data and before.get(name) != now.get(name)
    ]
    beside = [companion.key for companion in companions_of(now) or companions_of(before)]
    placed = bool(beside) or has_boxes(now) or has_boxes(before)
    of_tables = ("feature_columns", *BOX_OPTIONS, "masks", "pair") if placed else ()
    different = [name for name in of_tables if before.get(name) != now.get(name)]
    different = different + [
        name for name in changed if not _is_looser(name, before.get(name), now.get(name))
    ]
    if different:
        say(f"`{different[0]}=` differs: {everything}")
        return None, {}
    if beside and not isinstance(source.origin, BaseDataset):
        say(f"files beside the images ({', '.join(beside)}) may have changed: {everything}")
        return None, {}
    codecs = next(_codecs_in(dataset), None)
    if codecs is None:
        say(
            f"the folder .sources of {dataset.folder}, which says what it was made from, is missing: {everything}"
        )
        return None, {}
    older = {*before.get(_KEPT_CODECS, ())}
    compare = how.compare
    boxes = RecordBoxes.MAY_CHANGE
    if isinstance(source.origin, BaseDataset):
        compare = "names"
        boxes = RecordBoxes.STAY
    if not placed:
        boxes = RecordBoxes.NONE
    shapes = {name: feature["shape"] for name, feature in dataset.features.items()}
    rows_stay = shapes == {
        name: [*dims] for name, (_, dims) in features_of(now, labelled=source.plan.labelled).items()
    }
    base = BaseDataset(
        dataset.folder,
        dataset.fields["manifest_digest"],
        compare,
        not changed,
        codecs,
        rows_stay,
        boxes,
    )
    try:
        base.check_codecs(codec_versions.used_versions(now))
        if older and not how.codecs:
            problem = f"some records of the dataset were made by other codecs ({', '.join(sorted(older))})"
            cure = "`codecs=keep` keeps them, `codecs=convert` converts all images again"
            raise UsageError(f"{problem}; {cure}", option="codecs")
    except UsageError:
        if not how.codecs:
            raise
        older |= {f"{name} {version}" for name, version in json.loads(codecs or "{}").items()}
        base = base._replace(codecs="")
    if how.codecs == "convert" and older:
        return None, {}
    return base, {_KEPT_CODECS: sorted(older)} if older else {}


def _is_looser(name: str, before: Any, now: Any) -> bool:
    """Whether a limit lets more images pass than before, so all records stay as they are."""
    if options_of(ImageOptions)[name].group != LIMITS or before is None:
        return False
    return now is None or (now < before if name.startswith("min_") else now > before)


def _codecs_in(dataset: Manifest) -> Iterator[str]:
    """The codecs that made each shard, as JSON, as far as its sidecar is there."""
    for shard in planned_shards(dataset):
        with contextlib.suppress(OSError):
            sidecar = sidecars.read_published_sidecar(dataset.folder, shard)
            if sidecar:
                yield sidecar.info.shard.codecs
