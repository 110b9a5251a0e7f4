"""Beam's options for Google Cloud, as far as they concern our own requests to gs://: as whom, and who pays."""

from __future__ import annotations

import argparse

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beam_tfr import storage


class CloudOptions(PipelineOptions):
    """Ours, carried to the workers among Beam's."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--gcs_project", default="", help="project that pays for requests to gs://")


def use(options: PipelineOptions) -> None:
    """Makes the requests of this process those of --impersonate_service_account, --project and --gcs_project."""
    google = options.view_as(GoogleCloudOptions)
    storage.use_access(
        storage.Access(
            project=google.project or "",
            user_project=options.view_as(CloudOptions).gcs_project or "",
            impersonate=tuple(filter(None, (google.impersonate_service_account or "").split(","))),
        )
    )


def use_given() -> None:
    """The same with the options that the runner gave this process, if it is a worker's."""
    if FileSystems._pipeline_options is not None:
        use(FileSystems._pipeline_options)
