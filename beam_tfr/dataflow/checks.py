"""Checks a call as far as possible before a job is created."""

import os
import re
import secrets
from collections.abc import Sequence

from apache_beam.options import pipeline_options as beams
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

from beam_tfr import storage
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_option

_REGION_VARIABLE = "CLOUDSDK_COMPUTE_REGION"  # a variable of gcloud
_NEEDED = {"project": "my-project", "region": "europe-west4", "temp_location": "gs://BUCKET/tmp"}
_ON_GCS = ("output", "input", "table", "input_list")


def names_dataflow(options: PipelineOptions) -> bool:
    """Whether --runner names Dataflow."""
    runner = options.view_as(beams.StandardOptions).runner or ""
    return runner.rpartition(".")[2].lower() in ("dataflowrunner", "dataflow")


def creates_no_job(options: PipelineOptions) -> bool:
    """Whether the call is for a template or a dry run, which must not use the network."""
    google = options.view_as(beams.GoogleCloudOptions)
    test = options.view_as(beams.TestOptions)
    return bool(google.template_location or google.no_auth or test.dry_run)


def check_job(options: ConvertOptions, beam_options: PipelineOptions) -> None:
    """Checks options that Beam checks late or not at all; sets region and job name.

    Args:
        options: options of the conversion.
        beam_options: Beam's options with their defaults; the region may come from gcloud's
            environment.

    Raises:
        UsageError: an option is missing, has the wrong form, or is not allowed on Dataflow.
    """
    google = beam_options.view_as(beams.GoogleCloudOptions)
    google.region = google.region or os.environ.get(_REGION_VARIABLE)
    for name, example in _NEEDED.items():
        if not getattr(google, name):
            raise UsageError(
                f"is required for Dataflow, such as {spell_option(name, example)}", option=name
            )
    _check_with_beam(beam_options)
    for name in _ON_GCS:
        _check_on_gcs(name, getattr(options, name))
    submitter = google.impersonate_service_account
    if submitter and not google.service_account_email:
        raise UsageError(
            "only submits the job, because Beam does not pass it on to the workers: also set "
            "`service_account_email=`, the account for the workers",
            option="impersonate_service_account",
            value=submitter,
        )
    if not google.job_name:
        google.job_name = _make_job_name(options.name)


def _check_with_beam(beam_options: PipelineOptions) -> None:
    """Makes the checks that Beam makes too late.

    Beam skips some of these checks for a job that is sent to a local service.
    """
    google = beam_options.view_as(beams.GoogleCloudOptions)
    worker = beam_options.view_as(beams.WorkerOptions)
    validator = PipelineOptionsValidator(beam_options, None)
    errors = [
        *validator.validate_sdk_container_image_options(worker),
        *validator.validate_num_workers(worker),
        *validator.validate_worker_region_zone(worker),
    ]
    if "//localhost" not in google.dataflow_endpoint:  # otherwise Beam skips these checks too
        errors += validator.validate_cloud_options(google)
        errors += _validate_folder(validator, beam_options, "temp_location")
        errors += _validate_folder(validator, beam_options, "staging_location")
    if errors:
        raise UsageError(" ".join(errors))


def _validate_folder(
    validator: PipelineOptionsValidator, beam_options: PipelineOptions, name: str
) -> list[str]:
    """Returns Beam's errors about a folder of a job."""
    google = beam_options.view_as(beams.GoogleCloudOptions)
    folder = getattr(google, name)
    if not folder:
        return []
    # Beam would create its own bucket in place of one with a name that it does not accept.
    if not storage.is_gcs(folder) and creates_no_job(beam_options):
        return []
    return list(validator.validate_gcs_path(google, name))


def _check_on_gcs(name: str, value: str | Sequence[str] | None) -> None:
    """Checks that all paths in an option are on gs://."""
    if not value:
        return
    for path in [value] if isinstance(value, str) else value:
        if not storage.is_gcs(path):
            message = "must be on gs://, where Dataflow's workers can reach it"
            raise UsageError(message, option=name, value=path)


def _make_job_name(name: str) -> str:
    """Returns a unique job name for a dataset."""
    readable = re.sub("[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    return f"beam-tfr-{readable}-{secrets.token_hex(4)}"
