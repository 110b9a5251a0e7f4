"""Dataflow: checks before a job is created, what its workers get, how it ends."""

from beam_tfr.dataflow.checks import check, is_only_form, is_wanted, template_location
from beam_tfr.dataflow.jobs import Job, job_of, messages, stop, wait
from beam_tfr.dataflow.staging import staged

__all__ = [
    "Job",
    "check",
    "is_only_form",
    "is_wanted",
    "job_of",
    "messages",
    "staged",
    "stop",
    "template_location",
    "wait",
]
