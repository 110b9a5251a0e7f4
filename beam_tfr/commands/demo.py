"""The command `demo`: converts, verifies and reads the bundled photos, offline and in under a minute."""

import argparse
import functools
import importlib.util
import os
import pathlib
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence

from beam_tfr.console.terminal import silent_stderr
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import DataError, UsageError

SAMPLE = pathlib.Path(__file__).parents[1] / "sample"
LAYOUT = "{split}/{label}/*"
BATCH_SIZE = 8
_say = functools.partial(print, flush=True)


def demo(output: str) -> None:
    """Converts the bundled sample to `output`, verifies and reads it, and prints what it did.

    Writes nowhere else. If the folder already holds this dataset, it is used as it is.

    Raises:
        UsageError: TensorFlow is not installed, or `output` holds another dataset.
        DataError: the dataset does not verify.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError("the demo reads the dataset, which needs TensorFlow: pip install 'beam_tfr[convert,reader]'")
    from beam_tfr import launch  # Beam
    from beam_tfr.verification import verify

    sample = re.sub(r"[*?\[{]", r"[\g<0>]", str(SAMPLE))  # escape wildcards in the folder's own name
    result = launch.convert(ConvertOptions(input=(f"{sample}/*/*/*.jpg",), output=output, layout=LAYOUT))
    splits = ", ".join(f"{split.num_examples} {name}" for name, split in result.splits.items())
    took = f"{result.seconds:.1f} s" if result.fresh else "already converted"
    photos = f"{result.counts['matched']} photos of {len(result.class_names)} classes of clothes"
    _say(f"converted   {photos}: {splits}; {took}")
    report = verify(result.folder)
    if not report.ok:
        raise DataError(f"{report.problems[0]}; beam-tfr verify {shlex.quote(result.folder)} lists all problems")
    read, shards = report.counts["records_read"], report.counts["shards"]
    _say(f"verified    {read} records in {shards} files: checksums, images, labels, counts")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silent_stderr(), tempfile.TemporaryDirectory(prefix="beam_tfr-") as home:
        os.environ["KERAS_HOME"] = home  # Keras, which TensorFlow imports, writes a file there
        from beam_tfr.reader import load

        images, labels = next(iter(load(result.folder, split="train", batch_size=BATCH_SIZE)))
    _say(f"read back   batches of {images.dtype.name} {[*images.shape]} and {labels.dtype.name} {[*labels.shape]}")
    python = shlex.quote(sys.executable)
    _say(
        f"\nThe dataset (shards, labels.txt, manifest.json) is in {result.folder}.\n"
        "Next steps; the first needs a folder of your own with a folder of photos for each class:\n\n"
        f"  {python} -m beam_tfr convert --input photos --output photos_dataset\n"
        f"  {python} -m beam_tfr verify {shlex.quote(result.folder)}"
    )


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "demo",
        help="convert, verify and read the bundled sample photos",
        description="Converts, verifies and reads the bundled sample photos of clothes. Needs no network.",
    )
    parser.add_argument(
        "--output", metavar="DIR", default="beam_tfr_demo", help="folder of the dataset (default: %(default)s)"
    )


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Runs the demo."""
    demo(parsed.output)
    return 0
