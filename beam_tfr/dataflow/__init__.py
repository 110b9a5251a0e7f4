"""Dataflow: jobs, from the check of a call to their end.

`checks` looks at a call before a job exists, `staging` prepares what workers install, and `jobs`
creates and follows jobs.
"""
