"""Locks the folder of a dataset or an export while a command changes it."""

import contextlib
import functools
import uuid
from collections.abc import Iterator, Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from beam_tfr import storage
from beam_tfr.dataflow import checks, jobs
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.launch.flags import parse_beam_flags
from beam_tfr.output import claim, lock, switch
from beam_tfr.schema.dataset import SWITCH_FILE
from beam_tfr.schema.errors import UsageError


@contextlib.contextmanager
def hold_folder(folder: str, beam_options: PipelineOptions) -> Iterator[str]:
    """Locks a folder while the block runs; yields the id of the holder."""
    run_id = uuid.uuid4().hex
    job_state = functools.partial(jobs.read_job_state, beam_options)
    with lock.hold_lock(folder, run_id, job_state=job_state):
        yield run_id


def open_to_change(folder: str, beam_flags: Sequence[str]) -> tuple[Manifest, PipelineOptions]:
    """Reads Beam's options, and the manifest of a dataset that a command will change.

    First completes a run that was killed while it published the dataset.

    Raises:
        UsageError: the call is wrong.
        DataError: the manifest is missing or damaged.
    """
    beam_options = parse_beam_flags(beam_flags)
    folder = storage.check_path(folder)
    if checks.creates_no_job(beam_options):
        raise UsageError("`template_location=` and `dry_run=` change no dataset")
    work_files = storage.list_folder(storage.work_path(folder, ""))
    if not {SWITCH_FILE, claim.PLAN_FILE}.isdisjoint(work_files):
        with hold_folder(folder, beam_options) as run_id:
            switch.complete_switch(folder)
            claim.finish_killed_run(folder, run_id)
    return read_manifest(folder), beam_options
