"""Dataflow: `checks` before a job is created, `staging` of what its workers install, `jobs` and how they end."""
