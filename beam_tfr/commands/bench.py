"""Compares ways to read images for training, on this machine.

Reads the largest split of a dataset: as tutorials read TFRecords, with `load`, with PyTorch's
`ImageDataset` if it is installed, and from memory (decoding alone, which no reader can beat). With
--input, the files that it was made from too: one by one, in parallel, and from a cache in memory
and in a file. The ways take turns; a minute or two.

For the speed of a conversion, see beam-tfr plan.

examples:
  beam-tfr bench /data/photos-tfr
  beam-tfr bench /data/photos-tfr --input /data/photos
      is it worth it? The first lines read the files, as one does without a dataset.
  beam-tfr bench /data/photos-tfr --trace /tmp/trace
      what each thread does: for TensorBoard, or the .trace.json.gz in it at ui.perfetto.dev
"""

import argparse
import itertools
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfr import storage
from beam_tfr.commands.calls import DISPLAY_FLAGS, print_json, show_progress
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import counted, silent_stderr
from beam_tfr.options import ConvertOptions, add_arguments, default_threads
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError

if TYPE_CHECKING:
    from beam_tfr.dataset.manifest import Manifest
    from beam_tfr.speed.turns import Speed
    from beam_tfr.speed.ways import Way

HELP = "compare ways to read images for training"
DECODED = (".jpg", ".jpeg", ".png", ".gif", ".bmp")  # by TensorFlow
MOST_FILES = 1000  # that are read; a cache holds their pixels
BAR = 24  # characters of the fastest way


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder of a dataset, on disk or gs://")
    parser.add_argument(
        "--input",
        metavar="FOLDER",
        help="folder or pattern of image files to read as well, such as those that the dataset "
        "was made from; up to 1,000 are read",
    )
    parser.add_argument(
        "--trace",
        metavar="FOLDER",
        help="local folder for a trace of each way, for TensorBoard and Perfetto",
    )
    add_arguments(parser, ConvertOptions, DISPLAY_FLAGS, switches=True)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Measures the ways in turns, and prints a line for each."""
    from beam_tfr.dataset.manifest import read_manifest

    folder = storage.check_path(parsed.folder)
    dataset = read_manifest(folder)
    encoding = dataset.image_options.encoding
    if encoding not in IMAGE_ENCODINGS:
        raise UsageError(f"{folder} holds no images (`encoding={encoding}`)")
    split = _largest_split(dataset)
    paths = _list_images(parsed.input) if parsed.input else []
    with (
        show_progress(parsed, "turns") as display,
        tempfile.TemporaryDirectory(prefix="beam_tfr-") as scratch,
    ):
        cache = os.path.join(scratch, "cache")

        def report(done: int, number: int) -> None:
            display(Progress("reading", done, number))

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with silent_stderr():
            from beam_tfr.speed.traces import trace
            from beam_tfr.speed.turns import measure_in_turns, named_errors
        with named_errors():
            ways = _list_ways(dataset, split, paths, cache)
            measured = dict(measure_in_turns(ways, report))
            if parsed.trace:
                display(Progress("tracing", 0))
                display.say(f"trace: {trace(ways, parsed.trace)}")
    if parsed.json:
        print_json(_as_json(dataset, split, measured))
    else:
        _print_table(dataset, split, measured)
    return 0


def _largest_split(dataset: "Manifest") -> str:
    examples = {name: split.num_examples for name, split in dataset.splits.items()}
    largest = max(examples, key=lambda name: examples[name], default="")
    if not largest or not examples[largest]:
        raise UsageError(f"{dataset.folder} holds no records")
    return largest


def _list_images(pattern: str) -> list[str]:
    """The first files of a folder or pattern that TensorFlow decodes.

    Raises:
        UsageError: there is none.
    """
    from beam_tfr.inputs.listing import match_files
    from beam_tfr.inputs.patterns import escape_pattern, is_wild

    if not is_wild(pattern):
        pattern = f"{escape_pattern(pattern.rstrip('/'))}/**"
    entries = match_files([(pattern, ())])
    images = (entry.path for entry in entries if entry.path.lower().endswith(DECODED))
    paths = [*itertools.islice(images, MOST_FILES)]
    if not paths:
        raise UsageError(
            "matches no JPEG, PNG, GIF or BMP file, which are what TensorFlow decodes",
            option="input",
            value=pattern,
        )
    return sorted(paths)


def _list_ways(dataset: "Manifest", split: str, paths: Sequence[str], cache: str) -> list["Way"]:
    from beam_tfr.speed.ways import ways_of_dataset, ways_of_files

    ways = [*ways_of_dataset(dataset, split)]
    if paths:
        ways = [*ways_of_files(paths, dataset.image_options.stored_size, cache), *ways]
    return ways


def _as_json(dataset: "Manifest", split: str, measured: Mapping[str, "Speed"]) -> dict[str, Any]:
    from beam_tfr.speed.turns import describe_limit

    cores = default_threads()
    return {
        "split": split,
        "examples": dataset.splits[split].num_examples,
        "cores": cores,
        "ways": [
            {
                "name": name,
                "images_per_second": round(speed.images_per_s, 1),
                "cpu_ms": round(speed.cpu_s * 1e3, 3),
                "busy_cores": round(speed.busy_cores, 2),
                "limit": describe_limit(speed, cores),
            }
            for name, speed in measured.items()
        ],
    }


def _print_table(dataset: "Manifest", split: str, measured: Mapping[str, "Speed"]) -> None:
    from beam_tfr.speed.turns import describe_limit

    cores = default_threads()
    examples = dataset.splits[split].num_examples
    print(f"split {split}: {counted(examples, 'example')}; {counted(cores, 'core')}")
    print(f"{'':35}images/s  CPU ms")
    fastest = max(speed.images_per_s for speed in measured.values())
    for name, speed in measured.items():
        bar = "#" * max(1, round(BAR * speed.images_per_s / fastest))
        limit = describe_limit(speed, cores)
        print(
            f"{name:34} {speed.images_per_s:8,.0f} {speed.cpu_s * 1e3:7.3f}  {bar:{BAR}}  {limit}"
        )
