"""Beam's options for Google Cloud, applied to our own requests."""

from __future__ import annotations

import argparse
import os

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, StandardOptions

from beam_tfr import beam_internals, storage


class CloudOptions(PipelineOptions):
    """Our own option, which travels to the workers with Beam's."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--gcs_project", default="", help="project that pays for requests to gs://")


def use(options: PipelineOptions | None) -> None:
    """Makes this process use the account and the projects in the options, if any."""
    if options is None:
        return
    google = options.view_as(GoogleCloudOptions)
    storage.use_access(
        storage.Access(
            project=google.project or "",
            user_project=options.view_as(CloudOptions).gcs_project or "",
            impersonate=tuple(filter(None, (google.impersonate_service_account or "").split(","))),
        )
    )


def job_state(options: PipelineOptions | None, job_id: str) -> str:
    """The state of a job as Dataflow reports it, such as "RUNNING"; empty if it cannot be asked."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    google = options and options.view_as(GoogleCloudOptions)
    if not google or not google.project or not google.region:
        return ""
    try:
        return beam_internals.dataflow_job_state(google, job_id).removeprefix("JOB_STATE_")
    except (GoogleAPIError, GoogleAuthError):
        return ""


def own_job(options: PipelineOptions | None) -> str:
    """The id of the Dataflow job that this worker process works for; empty for any other process."""
    runner = options and options.view_as(StandardOptions).runner
    return os.environ.get("JOB_ID", "") if runner and runner.endswith("DataflowRunner") else ""
