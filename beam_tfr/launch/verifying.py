"""Verifies a dataset on any Beam runner."""

import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence

from apache_beam.options.pipeline_options import GoogleCloudOptions

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.manifest import check_not_replaced, read_manifest
from beam_tfr.engine import cloud
from beam_tfr.engine.failures import Outcome
from beam_tfr.engine.runs import follow_run, handling_interrupts
from beam_tfr.launch.flags import choose_dataset_runner, make_run, parse_beam_flags
from beam_tfr.schema.errors import RunError
from beam_tfr.transforms.shards import VerifyShards
from beam_tfr.verification import Report
from beam_tfr.verification.report import list_tasks

_OUTCOME = Outcome("nothing is verified", "run the same command again")


def verify_on(
    folder: str,
    beam_flags: Sequence[str],
    *,
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Report:
    """Verifies a dataset in a pipeline; returns the same report as `verification.verify`.

    Args:
        folder: folder of the dataset, which the runner's workers must be able to read.
        beam_flags: Beam's own options, as on a command line. The report comes back through
            `temp_location`, or through a folder on this machine.
        progress: see `verify`.
        say: called with messages about a remote job, one line each.

    Raises:
        UsageError: the call is wrong.
        DataError: the manifest is missing, invalid or edited; or another dataset replaced this one
            in the meantime.
        RunError: the run failed.
    """
    beam_options = parse_beam_flags(beam_flags)
    folder = storage.check_path(folder)
    runner = choose_dataset_runner("verify", [folder], beam_options, beam_flags)
    cloud.use_cloud_options(beam_options)
    dataset = read_manifest(folder)
    tasks = list_tasks(dataset)
    total = sum(task.entry.num_examples for task in tasks)

    def report_progress(counters: Mapping[str, int]) -> None:
        progress(
            Progress(
                "verifying",
                done=counters.get("verified-records", 0),
                total=total,
                shards=counters.get("verified-shards", 0),
                num_shards=len(tasks),
                num_bytes=counters.get("verified-bytes", 0),
            )
        )

    with tempfile.TemporaryDirectory(prefix="beam_tfr-") as local, handling_interrupts():
        shared_folder = beam_options.view_as(GoogleCloudOptions).temp_location or local
        path = storage.join(shared_folder, f"beam_tfr-verify-{uuid.uuid4().hex}.json")
        run = make_run(runner, VerifyShards(folder, path), beam_options, say=say)
        follow_run(run, report_progress, _OUTCOME)
        try:
            report = Report.from_json(storage.read_bytes(path))
        except FileNotFoundError:
            raise RunError(
                f"the runner reports success, but the report is not at {path}: set "
                "`temp_location=` to a folder that this machine and the workers share"
            ) from None
        storage.delete(path)
    check_not_replaced(dataset)
    return report
