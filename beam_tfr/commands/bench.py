"""Compares ways to read images for training, on this machine.

Reads the largest split of a dataset: as tutorials read TFRecords, with `load`, and with
`ImageDataset` if PyTorch is installed. Also measures decoding alone, from memory. With --input,
also reads the original files: one by one, in parallel, and from a cache in memory and in a file.
The methods take turns. Together they take a minute or two and about 1.4 GB of memory, half of which
is for TensorFlow; --trace takes a few seconds more. TensorFlow itself reads gs://, with Google's
default credentials; files that TensorFlow cannot read are not measured. Images with more pixels
than the dataset allows are not decoded.

For the speed of a conversion, see beam-tfr plan.

examples:
  beam-tfr bench /data/photos-tfr
  beam-tfr bench /data/photos-tfr --input /data/photos
      also reads the original files, to show whether a dataset is worth it
  beam-tfr bench /data/photos-tfr --trace /tmp/trace
      records what each thread does: open the folder in TensorBoard, or the .trace.json.gz below
      it at ui.perfetto.dev
"""

import argparse
import itertools
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfr import storage
from beam_tfr.commands.calls import DISPLAY_FLAGS, print_json, print_lines, show_progress
from beam_tfr.console.display import Display, Progress
from beam_tfr.console.terminal import counted, silent_stderr
from beam_tfr.options import ConvertOptions, add_arguments, default_threads
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.wildcards import escape_pattern

if TYPE_CHECKING:
    from beam_tfr.dataset.manifest import Manifest
    from beam_tfr.speed.turns import Speed, Unmeasured
    from beam_tfr.speed.ways import Way

HELP = "compare ways to read images for training"
DECODED = (".jpg", ".jpeg", ".png", ".gif", ".bmp")  # by TensorFlow
MOST_FILES = 1000  # files to read; a cache holds their pixels
FEWEST_EXAMPLES = 2000  # examples in a split that takes long enough to read
BAR = 24  # characters in the bar of the fastest way


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder of a dataset, on disk or gs://")
    parser.add_argument(
        "--input",
        metavar="FOLDER",
        help="folder or pattern of image files to read too, such as those that the dataset was "
        "made from; at most 1,000 are read",
    )
    parser.add_argument(
        "--trace",
        metavar="FOLDER",
        help="local folder for a trace of 256 images per method, for TensorBoard and Perfetto",
    )
    add_arguments(parser, ConvertOptions, DISPLAY_FLAGS, switches=True)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Measures the methods in turn, and prints a line for each."""
    from beam_tfr.dataset.manifest import read_manifest

    folder = storage.check_path(parsed.folder)
    dataset = read_manifest(folder)
    encoding = dataset.image_options.encoding
    if encoding not in IMAGE_ENCODINGS:
        raise UsageError(f"{folder} holds no images ({spell_option('encoding', encoding)})")
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
            from beam_tfr.speed.turns import measure_in_turns
            from beam_tfr.speed.ways import check_images
        check_images(dataset, split)
        ways = _list_ways(dataset, split, paths, cache)
        measured = Measured(dataset, split, measure_in_turns(ways, report))
        measured.check()
        if parsed.trace:
            measured.trace = _trace(measured, ways, parsed.trace, display)
    if parsed.json:
        print_json(measured.as_json())
    else:
        print_lines(measured.lines())
    return 0


def _trace(measured: "Measured", ways: Sequence["Way"], folder: str, display: Display) -> str:
    """Traces the measured methods; returns the path of the file for Perfetto."""
    from beam_tfr.speed.traces import trace

    display(Progress("tracing", 0))
    path = trace([way for way in ways if way.name in measured.speeds], folder)
    display.say(f"trace: {path}")
    return path


def _largest_split(dataset: "Manifest") -> str:
    examples = {name: split.num_examples for name, split in dataset.splits.items()}
    largest = max(examples, key=lambda name: examples[name], default="")
    if not largest or not examples[largest]:
        raise UsageError(f"{dataset.folder} holds no records")
    return largest


def _list_images(pattern: str) -> list[str]:
    """Lists the first files of a folder or pattern that TensorFlow can decode.

    Raises:
        UsageError: there are none.
    """
    from beam_tfr.inputs.listing import match_files
    from beam_tfr.inputs.patterns import is_wild

    if not is_wild(pattern):
        pattern = f"{escape_pattern(pattern.rstrip('/'))}/**"
    entries = match_files([(pattern, ())])
    images = (entry.path for entry in entries if entry.path.lower().endswith(DECODED))
    paths = [*itertools.islice(images, MOST_FILES)]
    if not paths:
        raise UsageError(
            "matches no JPEG, PNG, GIF or BMP file, the formats that TensorFlow decodes",
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


class Measured:
    """The speeds of all methods, as text and as JSON.

    Args:
        dataset: the dataset that was read.
        split: the split that was read.
        results: name -> speed of the method, or why it was not measured.

    Attributes:
        trace: path of the trace for Perfetto; empty if there is none.
    """

    def __init__(
        self, dataset: "Manifest", split: str, results: Mapping[str, "Speed | Unmeasured"]
    ) -> None:
        from beam_tfr.speed.turns import Unmeasured

        self.speeds = dict[str, "Speed"]()
        self.trace = ""
        self._problems = dict[str, str]()
        self._results = results
        self._cores = default_threads()
        self._split = split
        self._examples = dataset.splits[split].num_examples
        for name, result in results.items():
            if isinstance(result, Unmeasured):
                self._problems[name] = result.reason
            else:
                self.speeds[name] = result

    def check(self) -> None:
        """Checks that something was measured.

        Raises:
            DataError: nothing was measured.
        """
        if not self.speeds:
            raise DataError("; ".join(dict.fromkeys(self._problems.values())))

    def as_json(self) -> dict[str, Any]:
        """Returns the fields of --json."""
        return {
            "split": self._split,
            "examples": self._examples,
            "cores": self._cores,
            "ways": [self._describe_way(name) for name in self._results],
            "notes": self._list_notes(),
            "trace": self.trace or None,
        }

    def _describe_way(self, name: str) -> dict[str, Any]:
        from beam_tfr.speed.turns import describe_limit

        if name in self._problems:
            return {"name": name, "not_measured": self._problems[name]}
        speed = self.speeds[name]
        return {
            "name": name,
            "images_per_second": round(speed.images_per_s, 1),
            "cpu_ms": round(speed.cpu_s * 1e3, 3),
            "busy_cores": round(speed.busy_cores, 2),
            "other_cores": round(speed.other_cores, 2),
            "limit": describe_limit(speed, self._cores),
        }

    def lines(self) -> Iterator[str]:
        """Yields the table, followed by notes about it."""
        examples = counted(self._examples, "example")
        yield f"split {self._split}: {examples}; {counted(self._cores, 'core')}"
        yield f"{'':35}images/s  CPU ms"
        for name in self._results:
            yield self._line(name)
        for problem in dict.fromkeys(self._problems.values()):
            yield f"not measured: {problem}"
        for note in self._list_notes():
            yield f"note: {note}"

    def _line(self, name: str) -> str:
        from beam_tfr.speed.turns import describe_limit

        if name in self._problems:
            return f"{name:34} not measured"
        fastest = max(speed.images_per_s for speed in self.speeds.values())
        speed = self.speeds[name]
        bar = "#" * max(1, round(BAR * speed.images_per_s / fastest))
        cpu_ms = speed.cpu_s * 1e3
        limit = describe_limit(speed, self._cores)
        return f"{name:34} {speed.images_per_s:8,.0f} {cpu_ms:7.3f}  {bar:{BAR}}  {limit}"

    def _list_notes(self) -> list[str]:
        """Lists reasons to doubt the figures."""
        from beam_tfr.speed.turns import BUSY_ELSEWHERE

        notes = []
        if self._examples < FEWEST_EXAMPLES:
            notes.append(
                f"the largest split has {counted(self._examples, 'example')}, so the figures "
                f"include the start of epochs; use a dataset with at least {FEWEST_EXAMPLES:,}"
            )
        others = statistics.median(speed.other_cores for speed in self.speeds.values())
        if others >= BUSY_ELSEWHERE:
            notes.append(
                f"other programs kept {others:.1f} of {self._cores} cores busy during the "
                "measurement; measure again when they have ended"
            )
        return notes
