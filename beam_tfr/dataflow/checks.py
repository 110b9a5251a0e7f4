"""What can be known to be wrong with a call before a job is created."""

from __future__ import annotations

import os
import re
import secrets
import urllib.parse
from collections.abc import Sequence

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
    WorkerOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

from beam_tfr import storage
from beam_tfr.options import ConvertOptions
from beam_tfr.schema import UsageError

REGION_VARIABLE = "CLOUDSDK_COMPUTE_REGION"  # of gcloud
_REGION = re.compile(r"[a-z]+(-[a-z]+)+[0-9]+")
_PROJECT = re.compile(PipelineOptionsValidator.PROJECT_ID_PATTERN)
_JOB = re.compile(PipelineOptionsValidator.JOB_PATTERN)
_HOST = r"[a-zA-Z0-9.-]+(:[0-9]+)?/"
_IMAGE = re.compile(rf"({_HOST})?[a-z0-9._-]+(/[a-z0-9._-]+)*(:[\w][\w.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?")
_ARM = re.compile(r"(t2a|c4a|n4a|a4x)-")


def is_only_form(options: PipelineOptions) -> bool:
    """Whether nothing may be asked of the network but what the submission itself needs."""
    google = options.view_as(GoogleCloudOptions)
    return bool(google.template_location or google.no_auth or options.view_as(TestOptions).dry_run)


def check(options: ConvertOptions, beam_options: PipelineOptions, flags: Sequence[str]) -> None:
    """Checks the form of everything; what Beam checks itself is left to it.

    Args:
        options: of the conversion.
        beam_options: Beam's, with its defaults; the region of gcloud's environment is filled in.
        flags: Beam's, as given.

    Raises:
        UsageError: an option is missing, of a wrong form, or has no place on Dataflow.
    """
    google, worker = beam_options.view_as(GoogleCloudOptions), beam_options.view_as(WorkerOptions)
    if not google.project:
        raise UsageError("--project: Dataflow needs the id of your project, such as --project=my-project")
    if google.project.isdecimal() or not _PROJECT.fullmatch(google.project):
        raise UsageError(
            f"--project {google.project}: must be the project's id, such as my-project, not number or name"
        )
    if google.job_name and not _JOB.fullmatch(google.job_name):
        raise UsageError(f"--job_name {google.job_name}: may hold a-z, 0-9 and -, from a letter to a letter or digit")
    google.region = google.region or os.environ.get(REGION_VARIABLE)
    if not google.region:
        raise UsageError("--region: Dataflow needs one, best where the images are, such as --region=europe-west4")
    if not _REGION.fullmatch(google.region):
        raise UsageError(f"--region {google.region}: is no region, such as europe-west4 (a zone goes to --worker_zone)")
    for flag in ("temp_location", "staging_location"):
        _check_folder(flag, getattr(google, flag), local=is_only_form(beam_options))
    _check_places(options)
    image = worker.sdk_container_image or worker.worker_harness_container_image
    if image and not _IMAGE.fullmatch(image):
        raise UsageError(
            f"--sdk_container_image {image}: is no name of an image, such as "
            "europe-west4-docker.pkg.dev/PROJECT/REPOSITORY/beam-tfr:TAG"
        )
    if not image and (arm := _ARM.match(worker.machine_type or "")):
        raise UsageError(
            f"--machine_type {worker.machine_type}: {arm[1]} machines are no x86-64, for which the codecs are staged; "
            "give --sdk_container_image with an image for them, or another machine"
        )
    _check_conflicts(options, beam_options, flags)
    _check_template(google.template_location)
    validator = PipelineOptionsValidator(beam_options, None)  # Beam itself leaves these out for other endpoints
    if not (urllib.parse.urlsplit(google.dataflow_endpoint or "").hostname or "").startswith("localhost"):
        # Beam would create a bucket of its own in place of one whose name it does not take.
        for flag in ("temp_location", "staging_location"):
            folder = getattr(google, flag)
            if folder and storage.is_gcs(folder) and validator.validate_gcs_path(google, flag):
                raise UsageError(
                    f"--{flag} {folder}: must be gs://BUCKET/FOLDER, the bucket of 3 to 63 of a-z, 0-9, -, _ and ."
                )
    errors = validator.validate_num_workers(worker) + validator.validate_worker_region_zone(worker)
    errors += validator.validate_sdk_container_image_options(worker)
    if errors:
        raise UsageError(" ".join(errors))
    if not google.job_name:
        name = re.sub("[^a-z0-9]+", "-", options.name.lower())[:40].strip("-")
        google.job_name = f"beam-tfr-{name}-{secrets.token_hex(4)}"


def _check_folder(flag: str, folder: str | None, *, local: bool) -> None:
    if not folder:
        if flag == "temp_location":
            raise UsageError(
                "--temp_location: Dataflow needs a folder on gs://, such as --temp_location=gs://BUCKET/tmp"
            )
        return
    if not (local or storage.is_gcs(folder)):
        raise UsageError(f"--{flag} {folder}: must be on gs://, where Dataflow's workers can reach it")
    if storage.is_gcs(folder):
        storage.check_path(folder, option=flag)
    elif not os.path.isdir(folder):
        raise UsageError(f"--{flag} {folder}: there is no such folder; make it first")


def _check_template(path: str | None) -> None:
    if path and not storage.is_gcs(path) and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise UsageError(f"--template_location {path}: its folder is not there; make it first")


def _check_places(options: ConvertOptions) -> None:
    places = [("output", options.output), *(("input", pattern) for pattern in options.input)]
    places += [("table", table) for table in options.table]
    places += [
        (flag, path) for flag in ("input_list", "save_plan", "plan") if (path := getattr(options, flag)) is not None
    ]
    for flag, path in places:
        if not storage.is_gcs(path):
            raise UsageError(f"--{flag} {path}: must be on gs://, where Dataflow's workers can reach it")


def _check_conflicts(options: ConvertOptions, beam_options: PipelineOptions, flags: Sequence[str]) -> None:
    google = beam_options.view_as(GoogleCloudOptions)
    if direct := next((flag for flag in flags if flag.startswith("--direct_")), None):
        raise UsageError(f"{direct.partition('=')[0]} has no effect with --runner=DataflowRunner: it is for local runs")
    if beam_options.view_as(StandardOptions).streaming:
        raise UsageError("--streaming: a conversion has an end, and runs as a batch job; leave it out")
    if beam_options.view_as(SetupOptions).save_main_session:
        raise UsageError("--save_main_session: there is nothing to save, the package itself is staged; leave it out")
    if google.update:
        raise UsageError("--update: is for streaming jobs; the same command goes on with what is finished")
    if google.template_location and options.on_interrupt != "ask":
        raise UsageError(
            f"--on_interrupt={options.on_interrupt} has no effect with --template_location: no job is created here"
        )
