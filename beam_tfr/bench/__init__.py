"""`beam-tfr bench`: measures in under a minute how fast this machine reads a dataset or converts files."""

from beam_tfr.bench.converting import bench_convert, describe_convert
from beam_tfr.bench.reading import bench_read, describe_read

__all__ = ["bench_convert", "bench_read", "describe_convert", "describe_read"]
