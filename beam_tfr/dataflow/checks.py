"""Checks a call as far as possible before a job is created."""

import os
import re
import secrets

from apache_beam.options import pipeline_options as beams
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

from beam_tfr import storage
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import UsageError

_REGION_VARIABLE = "CLOUDSDK_COMPUTE_REGION"  # of gcloud
_NEEDED = {"project": "my-project", "region": "europe-west4", "temp_location": "gs://BUCKET/tmp"}
_ON_GCS = ("output", "input", "table", "input_list")


def is_wanted(options: PipelineOptions) -> bool:
    """True if --runner names Dataflow."""
    runner = options.view_as(beams.StandardOptions).runner or ""
    return runner.rpartition(".")[2].lower() in ("dataflowrunner", "dataflow")


def is_only_form(options: PipelineOptions) -> bool:
    """True for a template or a dry run, which must not touch the network."""
    google = options.view_as(beams.GoogleCloudOptions)
    return bool(
        google.template_location or google.no_auth or options.view_as(beams.TestOptions).dry_run
    )


def check(options: ConvertOptions, beam_options: PipelineOptions) -> None:
    """Checks what Beam checks late or not at all; sets region and job name.

    Args:
        options: options of the conversion.
        beam_options: Beam's options with their defaults; the region may come from gcloud's
            environment.

    Raises:
        UsageError: an option is missing, has the wrong form, or has no place on Dataflow.
    """
    google = beam_options.view_as(beams.GoogleCloudOptions)
    worker = beam_options.view_as(beams.WorkerOptions)
    google.region = google.region or os.environ.get(_REGION_VARIABLE)
    for name, example in _NEEDED.items():
        if not getattr(google, name):
            raise UsageError(f"is required for Dataflow, such as `{name}={example}`", option=name)
    validator = PipelineOptionsValidator(beam_options, None)
    errors = validator.validate_sdk_container_image_options(worker)
    errors += validator.validate_num_workers(worker) + validator.validate_worker_region_zone(worker)
    if "//localhost" not in google.dataflow_endpoint:  # where Beam skips these too
        errors += validator.validate_cloud_options(google)
        for name in ("temp_location", "staging_location"):
            folder = getattr(google, name)
            # Beam would create a bucket of its own in place of one whose name it does not accept.
            if folder and (storage.is_gcs(folder) or not is_only_form(beam_options)):
                errors += validator.validate_gcs_path(google, name)
    if errors:
        raise UsageError(" ".join(errors))
    for name in _ON_GCS:
        given = getattr(options, name) or ()
        for path in [given] if isinstance(given, str) else given:
            if not storage.is_gcs(path):
                message = "must be on gs://, where Dataflow's workers can reach it"
                raise UsageError(message, option=name, value=path)
    submitter = google.impersonate_service_account
    if submitter and not google.service_account_email:
        problem = "only submits the job: Beam takes it away from the workers"
        message = f"{problem}; also give `service_account_email=`, the account that they act as"
        raise UsageError(message, option="impersonate_service_account", value=submitter)
    if not google.job_name:
        name = re.sub("[^a-z0-9]+", "-", options.name.lower())[:40].strip("-")
        google.job_name = f"beam-tfr-{name}-{secrets.token_hex(4)}"
