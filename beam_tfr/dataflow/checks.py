"""Checks a call as far as possible before a job is created."""

from __future__ import annotations

import os
import re
import secrets
import urllib.parse
from collections.abc import Sequence
from typing import NoReturn

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
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
_NOT_ON_GCS = "must be on gs://, where Dataflow's workers can reach it"
_ARM = re.compile(r"(t2a|c4a|n4a|a4x)-")


def is_wanted(options: PipelineOptions) -> bool:
    """Whether --runner names Dataflow."""
    return (options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower() in ("dataflowrunner", "dataflow")


def is_only_form(options: PipelineOptions) -> bool:
    """True for templates and dry runs, which must not touch the network."""
    google = options.view_as(GoogleCloudOptions)
    return bool(google.template_location or google.no_auth or options.view_as(TestOptions).dry_run)


def template_location(options: PipelineOptions) -> str:
    """The file that gets a job's description instead of the service, if any."""
    return options.view_as(GoogleCloudOptions).template_location or ""


def check(options: ConvertOptions, beam_options: PipelineOptions, flags: Sequence[str]) -> None:
    """Checks what Beam does not check itself; fills in region and job name.

    Args:
        options: of the conversion.
        beam_options: Beam's, with its defaults; the region may come from gcloud's environment.
        flags: Beam's, as given.

    Raises:
        UsageError: an option is missing, has the wrong form, or has no place on Dataflow.
    """
    google, worker = beam_options.view_as(GoogleCloudOptions), beam_options.view_as(WorkerOptions)
    if not google.project:
        raise UsageError("Dataflow needs the id of your project, such as `project=my-project`", option="project")
    if google.project.isdecimal() or not _PROJECT.fullmatch(google.project):
        _refuse("project", google.project, "must be the project's id, such as my-project, not its number or name")
    if google.job_name and not _JOB.fullmatch(google.job_name):
        _refuse("job_name", google.job_name, "may hold a-z, 0-9 and -, from a letter to a letter or digit")
    google.region = google.region or os.environ.get(REGION_VARIABLE)
    if not google.region:
        raise UsageError(
            "Dataflow needs one, preferably that of the images, such as `region=europe-west4`", option="region"
        )
    if not _REGION.fullmatch(google.region):
        _refuse("region", google.region, "is not a region, such as europe-west4 (for a zone use `worker_zone=`)")
    for name in ("temp_location", "staging_location"):
        _check_folder(name, getattr(google, name), local=is_only_form(beam_options))
    _check_places(options)
    image = worker.sdk_container_image or worker.worker_harness_container_image
    if image and not _IMAGE.fullmatch(image):
        example = "europe-west4-docker.pkg.dev/PROJECT/REPOSITORY/beam-tfr:TAG"
        _refuse("sdk_container_image", image, f"is not the name of an image, such as {example}")
    if not image and (arm := _ARM.match(worker.machine_type or "")):
        _refuse(
            "machine_type",
            worker.machine_type,
            f"{arm[1]} machines are not x86-64, for which the codecs are staged; give `sdk_container_image=` with an "
            "image for them, or choose another machine",
        )
    _check_conflicts(options, beam_options, flags)
    template = google.template_location
    if template and not storage.is_gcs(template) and not os.path.isdir(os.path.dirname(os.path.abspath(template))):
        _refuse("template_location", template, "its folder does not exist; create it first")
    validator = PipelineOptionsValidator(beam_options, None)  # Beam itself skips these checks for other endpoints
    if not (urllib.parse.urlsplit(google.dataflow_endpoint or "").hostname or "").startswith("localhost"):
        # Beam would create a bucket of its own in place of one whose name it does not accept.
        for name in ("temp_location", "staging_location"):
            folder = getattr(google, name)
            if folder and storage.is_gcs(folder) and validator.validate_gcs_path(google, name):
                _refuse(name, folder, "must be gs://BUCKET/FOLDER, the bucket of 3 to 63 of a-z, 0-9, -, _ and .")
    errors = validator.validate_num_workers(worker) + validator.validate_worker_region_zone(worker)
    errors += validator.validate_sdk_container_image_options(worker)
    if errors:
        raise UsageError(" ".join(errors))
    if not google.job_name:
        name = re.sub("[^a-z0-9]+", "-", options.name.lower())[:40].strip("-")
        google.job_name = f"beam-tfr-{name}-{secrets.token_hex(4)}"


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    raise UsageError(allowed, option=name, value=value)


def _check_folder(name: str, folder: str | None, *, local: bool) -> None:
    if not folder:
        if name == "temp_location":
            raise UsageError(
                "Dataflow needs a folder on gs://, such as `temp_location=gs://BUCKET/tmp`", option="temp_location"
            )
    elif storage.is_gcs(folder):
        storage.check_path(folder, option=name)
    elif not local:
        _refuse(name, folder, _NOT_ON_GCS)
    elif not os.path.isdir(folder):
        _refuse(name, folder, "this folder does not exist; create it first")


def _check_places(options: ConvertOptions) -> None:
    for name in ("output", "input", "table", "input_list", "save_plan", "plan"):
        given = getattr(options, name) or ()
        for path in [given] if isinstance(given, str) else given:
            if not storage.is_gcs(path):
                _refuse(name, path, _NOT_ON_GCS)


def _check_conflicts(options: ConvertOptions, beam_options: PipelineOptions, flags: Sequence[str]) -> None:
    google = beam_options.view_as(GoogleCloudOptions)
    if direct := next((flag for flag in flags if flag.startswith("--direct_")), None):
        name = direct.partition("=")[0].removeprefix("--")
        raise UsageError(f"`{name}=` has no effect with `runner=DataflowRunner`: it is for local runs")
    if beam_options.view_as(StandardOptions).streaming:
        raise UsageError("a conversion ends, and runs as a batch job; leave it out", option="streaming")
    if google.template_location and options.on_interrupt != "ask":
        raise UsageError(
            f"`on_interrupt={options.on_interrupt}` has no effect with `template_location=`: no job is created here"
        )
