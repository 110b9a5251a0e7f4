"""Dataflow: `checks` a call, does the `staging` of what workers install, and follows `jobs`."""
