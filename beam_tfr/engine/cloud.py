"""Applies Beam's options for Google Cloud to our own requests."""

import argparse
import re

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beam_tfr import storage


class CloudOptions(PipelineOptions):
    """Our own option, which reaches the workers along with Beam's options."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--gcs_project", help="project that pays for requests to gs://")


def use_cloud_options(options: PipelineOptions | None) -> None:
    """Makes this process use the account and the projects in the options, if they are set."""
    if options is None:
        return
    google = options.view_as(GoogleCloudOptions)
    access = storage.Access(
        project=google.project or None,
        user_project=options.view_as(CloudOptions).gcs_project or None,
        impersonate=tuple(re.findall("[^,]+", google.impersonate_service_account or "")),
    )
    storage.use_access(access)
