"""Checks a dataset against its manifest.

`verify` reports what is wrong and where.

    from beam_tfr.verification import verify
    report = verify("gs://bucket/flowers")
    for problem in report.problems:
        print(problem)

`dataset_check` reads the shards in parallel and compares sums, keys and digests with the manifest,
`shard_check` reads one shard and its contents, `record_check` checks a record, `source_check`
checks the source of a record, and `manifest_check` checks all other files. `report` holds the
problems.
"""

from beam_tfr.verification.dataset_check import verify
from beam_tfr.verification.report import Problem, Report

__all__ = ["Problem", "Report", "verify"]
