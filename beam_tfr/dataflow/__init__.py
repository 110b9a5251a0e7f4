"""Runs conversions as Dataflow jobs, from the check of a call to the end of the job.

`checks` checks a call before a job exists, `staging` prepares the packages that workers install,
and `jobs` creates and follows jobs.
"""
