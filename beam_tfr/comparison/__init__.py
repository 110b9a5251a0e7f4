"""Compares two datasets without reading a shard.

`diff` reads their manifests and contents.

    difference = beam_tfr.diff("/data/v1", "/data/v2")
    print(difference)
    lost = [record["key"] for record in difference.records("removed")]

`compared_contents` reads the contents of a dataset, `classification` compares numbers that stand
for values to find the rows that differ, and `difference` shows these rows.

The contents stay in Arrow's memory and take 150 bytes per record. They are compared column by
column, which temporarily takes another 250 bytes per record. Two datasets of 1,000,000 records each
take 7 s of CPU time and 0.8 GB.
"""

from beam_tfr.comparison.difference import Difference, diff

__all__ = ["Difference", "diff"]
