"""Verifies a dataset on any of Beam's runners."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from apache_beam.options.pipeline_options import GoogleCloudOptions

from beam_tfr import cloud, manifest, storage
from beam_tfr.dataflow import checks, jobs
from beam_tfr.launch.elsewhere import submit
from beam_tfr.launch.failures import reworded
from beam_tfr.launch.flags import choose_runner, parse_beam_flags
from beam_tfr.launch.live import JobCounters
from beam_tfr.launch.running import build, on_interrupt, wait
from beam_tfr.launch.starting import follow
from beam_tfr.options import ConvertOptions
from beam_tfr.schema import RunError, UsageError
from beam_tfr.transforms import VerifyShards
from beam_tfr.verification import Progress, Report
from beam_tfr.verification.dataset_check import choose

TICK_S = 2.0  # between looks at the counters


@reworded("verified")
def verify_on(
    folder: str,
    beam_flags: Sequence[str],
    *,
    sample: float | None = None,
    seed: int = 0,
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Report:
    """Verifies a dataset as a pipeline; the report is that of `verification.verify`.

    Args:
        folder: folder of the dataset, where the runner's workers can read it.
        beam_flags: Beam's own options, as on a command line. The report comes back by way of `temp_location`, or of a
            folder of this machine.
        sample, seed, progress: see `verify`.
        say: called with messages about a remote job, one line each.

    Raises:
        UsageError: the call is wrong.
        DataError: there is no manifest, or it is invalid or was edited; or another dataset replaced this one meanwhile.
        RunError: the run failed.
    """
    beam_options = parse_beam_flags(beam_flags)
    folder = storage.check_path(folder)
    on_dataflow = checks.is_wanted(beam_options)
    if on_dataflow:
        if not storage.is_gcs(folder):
            raise UsageError(f"{folder}: must be on gs://, where Dataflow's workers can reach it")
        if checks.is_only_form(beam_options):
            raise UsageError("`template_location=` and `dry_run=` verify nothing")
        checks.check(ConvertOptions(input=(f"{folder.rstrip('/')}/*",), output=folder), beam_options)
    cloud.use(beam_options)
    dataset = manifest.read(folder)
    tasks = choose(dataset, sample, seed)
    total = sum(task.entry.num_examples for task in tasks)

    def report(counters: Callable[[], Mapping[str, int]]) -> Callable[[], None]:
        last = [time.monotonic()]

        def tick() -> None:
            if progress is not None and time.monotonic() - last[0] >= TICK_S:
                last[0] = time.monotonic()
                done = counters()
                shards, records, read = (done.get(f"verified-{of}", 0) for of in ("shards", "records", "bytes"))
                progress(Progress(shards, len(tasks), records, total, read))

        return tick

    with tempfile.TemporaryDirectory(prefix="beam_tfr-") as local, on_interrupt():
        place = beam_options.view_as(GoogleCloudOptions).temp_location or local
        path = storage.join(place, f"beam_tfr-verify-{uuid.uuid4().hex}.json")
        step = VerifyShards(folder, path, sample=sample, seed=seed)
        if on_dataflow:
            with jobs.messages(say):
                result, job = submit(step, beam_options, say)

                def stop() -> str:
                    jobs.stop(result, job, "cancel")
                    return f"job {job.id} is cancelled"

                wait(lambda: jobs.wait(result, job), tick=report(JobCounters(result).latest), stop=stop)
        else:
            runner = choose_runner(beam_options, beam_flags)
            follow(build(step, runner, beam_options), runner, beam_options, report)
        try:
            found = Report.from_json(storage.read_bytes(path))
        except FileNotFoundError:
            cure = "give a folder that this machine and the workers share as `temp_location=`"
            raise RunError(f"the runner reports success, but the report is not at {path}: {cure}") from None
        storage.delete(path)
    manifest.check_current(dataset)
    return found
