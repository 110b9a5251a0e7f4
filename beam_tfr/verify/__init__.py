"""verify: reads everything that a manifest promises and reports what is wrong and where.

from beam_tfr.verify import verify
report = verify("gs://bucket/flowers")
for problem in report.problems:
    print(problem)

`dataset_check` reads the shards in parallel, `shard_check` one of them, `record_check` a record, `image_check` and
`tensor_check` what is stored in it; `manifest_check` compares the other files, `totals_check` sums, keys and digests.
"""

from beam_tfr.verify.dataset_check import MAX_PIXELS, Report, verify
from beam_tfr.verify.problems import Problem

__all__ = ["MAX_PIXELS", "Problem", "Report", "verify"]
