"""Compares two datasets without reading a shard.

`diff` reads their manifests and contents.

    difference = beam_tfr.diff("/data/v1", "/data/v2")
    print(difference)
    lost = [record["key"] for record in difference.records("removed")]

`compared_contents` reads the contents of a dataset, `classification` finds the rows that differ by
numbers that stand for values, and `difference` shows them.

The contents stay in Arrow's memory, 150 bytes for each record. They are compared column by column,
which takes 250 bytes more for each record while it lasts. Two datasets of 1,000,000 records each
take 7 s of CPU time and 0.8 GB.
"""

from beam_tfr.comparison.difference import Difference, diff

__all__ = ["Difference", "diff"]
