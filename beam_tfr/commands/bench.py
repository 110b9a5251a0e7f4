"""The command `bench`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence

from beam_tfr import storage
from beam_tfr.commands.calls import at_least
from beam_tfr.display import add_display, on_stderr
from beam_tfr.options import ImageOptions, add_arguments, from_arguments
from beam_tfr.schema import InterruptedRunError, UsageError

EXAMPLES = """examples:
  beam-tfr bench /data/photos
      how fast this dataset is read, with and without a cache, and the bottleneck
  beam-tfr bench --input 'photos/**/*.jpg' --images 1000000 --cores 64
      how fast these files are converted, the bottleneck, and how long a million would take on 64 cores
"""


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "bench",
        help="measure how fast this machine reads a dataset or converts files",
        description="Measures how fast this machine reads a dataset or converts files, and what the bottleneck is. "
        "Takes less than a minute.",
        epilog=EXAMPLES,
    )
    parser.add_argument("folder", metavar="DIR", nargs="?", help="folder of a dataset, on disk or gs://")
    parser.add_argument(
        "--input",
        metavar="GLOB",
        nargs="+",
        help="files to convert a sample of; with DIR: files to read one by one, for comparison",
    )
    parser.add_argument(
        "--images", metavar="N", type=at_least(1), help="number of images to predict the time for (default: all)"
    )
    parser.add_argument(
        "--cores",
        metavar="N",
        type=at_least(1),
        help="number of cores to predict the time for (default: all of this machine)",
    )
    parser.add_argument("--tensorboard", metavar="LOGDIR", help="with DIR: write a trace for TensorBoard's profiler")
    add_display(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    add_arguments(parser, ImageOptions)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Measures reading a dataset, or converting files."""
    options = from_arguments(parsed, ImageOptions)
    of_files = [name for name in ("images", "cores", *vars(options)) if getattr(parsed, name)]
    if parsed.folder and of_files:
        raise UsageError(f"`{of_files[0]}=` has no effect with DIR: it is for converting files")
    if not parsed.folder and parsed.tensorboard:
        raise UsageError("`tensorboard=` has no effect without DIR: it traces how a dataset is read")
    if not parsed.folder and not parsed.input:
        raise UsageError("give the folder of a dataset, or files: `input=`")
    from beam_tfr import bench

    if parsed.folder:
        folder, logs = storage.check_path(parsed.folder), parsed.tensorboard or ""
        found = bench.bench_read(folder, parsed.input or (), tensorboard=logs)
        text = bench.describe_read(found)
    else:
        how = {"images": parsed.images, "cores": parsed.cores}
        with on_stderr("bench", log_format=parsed.log_format, quiet=parsed.quiet) as shown:
            try:
                found = bench.bench_convert(parsed.input, options, **how, progress=shown)
            except InterruptedRunError:  # whose message is about a dataset
                raise KeyboardInterrupt from None
        text = bench.describe_convert(found)
    print(json.dumps(found, sort_keys=True) if parsed.json else text)
    return 0
