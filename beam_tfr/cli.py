"""The command line; imports Beam and TensorFlow only when a command needs them."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import gc
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from beam_tfr import __version__, storage
from beam_tfr.options import ConvertOptions, ImageOptions, add_arguments, from_arguments
from beam_tfr.schema import TRACEBACK_VARIABLE, BeamTfrError, UsageError, as_flags
from beam_tfr.schema.features import things
from beam_tfr.terminal import counted, discard_stdout, open_standard_streams, own_stderr, say

CONVERT_EXAMPLES = """examples:
  beam-tfr convert --input 'photos/**/*.jpg' --output /data/photos
      photos/cat/1.jpg belongs to class cat; everything goes into the split train
  beam-tfr convert --input 'photos/**/*.jpg' --output /data/photos --splits train=0.9,test=0.1
  beam-tfr convert --input 'gs://bucket/photos/**/*.jpg' --output gs://bucket/dataset --layout '{split}/{label}/*'
      gs://bucket/photos/train/cat/1.jpg belongs to class cat and split train

Beam's own options are accepted too: --runner=DataflowRunner --project=… --region=… and so on.
Without --runner it runs here, on every core.
After an interruption, the same command resumes where it stopped.
"""

BENCH_EXAMPLES = """examples:
  beam-tfr bench /data/photos
      how fast this dataset is read, cached or not, and what limits that
  beam-tfr bench --input 'photos/**/*.jpg' --images 1000000 --cores 64
      how fast these files are converted, what limits that, and how long a million would take on 64 cores
"""

PROGRESS_S = 10.0
COMMANDS = ("convert", "verify", "demo", "template", "bench")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="beam-tfr",
        description="Folders of images become sharded, verified TFRecord datasets.",
        epilog="start with: beam-tfr demo\nexit codes: 0 done, 1 the data is wrong or the run failed, "
        "2 the call is wrong, 130 interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"beam-tfr {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    add = functools.partial(commands.add_parser, allow_abbrev=False)
    convert = add(
        "convert",
        help="convert images to a dataset",
        description="Converts images to a dataset of sharded TFRecords. Every matching file becomes a record or is "
        "listed in rejects.jsonl with a reason.",
        epilog=CONVERT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(convert, ConvertOptions)
    verify = add(
        "verify",
        help="re-read a dataset and check everything that its manifest promises",
        description="Re-reads every shard of a dataset: checksums, records, images, labels, counts. Names file and "
        "record and exits with 1 if something is wrong.",
    )
    verify.add_argument("folder", metavar="DIR", help="folder of the dataset, on disk or gs://")
    template = add(
        "template",
        help="write the spec file of the Dataflow Flex Template",
        description="Writes the spec file of the Dataflow Flex Template, whose parameters are the options of convert. "
        "See templates/README.md in the sources for how to build its image and start it.",
    )
    template.add_argument(
        "--image", metavar="IMAGE", required=True, help="image of launcher and workers, in a registry"
    )
    template.add_argument("--output", metavar="FILE", help="file to write, local or gs:// (default: standard output)")
    demo = add(
        "demo",
        help="convert, verify, read and train on a bundled sample of photos",
        description="Converts, verifies and reads a bundled sample of photos of clothes, and trains a small model on "
        "it. Needs no network.",
    )
    demo.add_argument("--output", metavar="DIR", default="beam_tfr_demo", help="(default: %(default)s)")
    add_bench(add)
    return parser


def add_bench(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command `bench`."""
    bench = add(
        "bench",
        help="measure how fast a dataset is read here, or files are converted",
        description="Measures how fast this machine reads a dataset, or converts files, and what limits that. Takes "
        "less than a minute.",
        epilog=BENCH_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.add_argument("folder", metavar="DIR", nargs="?", help="folder of a dataset, on disk or gs://")
    bench.add_argument(
        "--input", metavar="GLOB", nargs="+", help="files to convert a sample of; beside DIR: to read one by one"
    )
    bench.add_argument("--images", metavar="N", type=positive, help="images to predict the hours for (default: all)")
    bench.add_argument("--cores", metavar="N", type=positive, help="cores to predict the hours for (default: all here)")
    bench.add_argument("--tensorboard", metavar="LOGDIR", help="with DIR: write a trace for TensorBoard's profiler")
    bench.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    add_arguments(bench, ImageOptions)


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number, 1 or more")
    return int(text)


def run() -> NoReturn:
    """Runs `main` and exits with its code: the console script."""
    open_standard_streams()
    # Google's libraries warn about every Python but the newest, several times a run.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
    code = main()
    if code == 130:  # threads of the interrupted engine would keep the process alive, and print
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    if not arguments:
        parser.print_help()
        return 0
    program = f"beam-tfr {arguments[0]}" if arguments[0] in COMMANDS else "beam-tfr"
    try:
        if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
            near = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are: {', '.join(COMMANDS)}"
            raise UsageError(f"{arguments[0]}: unknown command; {hint}")
        parsed, others = parser.parse_known_args(arguments)
        if others and parsed.command != "convert":
            raise UsageError(f"unknown: {' '.join(others)}; see {program} --help")
        if parsed.command == "convert":
            code = run_convert(parsed, others)
        elif parsed.command == "template":
            code = run_template(parsed.image, parsed.output)
        elif parsed.command == "verify":
            code = run_verify(parsed.folder)
        elif parsed.command == "bench":
            code = run_bench(parsed)
        else:
            from beam_tfr.demo import demo

            demo(parsed.output)
            code = 0
        sys.stdout.flush()
        return code
    except BeamTfrError as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exception(error)
        say(f"{program}: {as_flags(str(error))}")
        return error.exit_code
    except KeyboardInterrupt:
        say(f"{program}: interrupted")
        return 130
    except BrokenPipeError:  # the reader of standard output has seen enough
        discard_stdout()
        return 1
    except OSError as error:  # standard output takes no more: the disk is full
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exception(error)
        discard_stdout()
        say(f"{program}: {error}")
        return 1


def run_convert(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Converts; `others` are Beam's flags."""
    try:
        options = from_arguments(parsed, ConvertOptions)
    except UsageError:
        if others:  # a misspelled flag may be why one is missing: report that first
            from beam_tfr import launch

            launch.parse_beam_flags(others)
        raise
    with _first_imports():
        from beam_tfr import launch  # imports Beam: not before the options are known to be valid
    from beam_tfr.summary import ProgressLines, print_job, print_saved, print_summary, summary

    with own_stderr() as stream:
        lines = ProgressLines(stream, things(options.encoding))
        done = launch.start(options, others, progress=lines.tell, say=lines.say)
    if isinstance(done, launch.Saved):
        print_saved(done, as_json=options.json)
    elif isinstance(done, launch.Job):
        print_job(done, as_json=options.json)
    elif options.json:
        print(json.dumps(summary(done), sort_keys=True))
    else:
        print_summary(done, to=sys.stdout)
    if options.json and isinstance(done, launch.Result):
        with contextlib.suppress(OSError):
            print_summary(done, to=sys.stderr)
    return 0


@contextlib.contextmanager
def _first_imports() -> Iterator[None]:
    """Never looks for garbage among the objects of Beam's modules, which would take a tenth of a short run."""
    if "apache_beam" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run_verify(folder: str) -> int:
    """Verifies a dataset; 1 if it has problems."""
    from beam_tfr.verification import verify

    shown = [time.monotonic()]

    def progress(done: int, total: int) -> None:
        if time.monotonic() - shown[0] >= PROGRESS_S:
            shown[0] = time.monotonic()
            say(f"verify: {done:,} of {total:,} records")

    report = verify(storage.check_path(folder), progress=progress)
    for problem in report.problems:
        say(str(problem))
    if report.num_problems > len(report.problems):
        say(f"and at least {report.num_problems - len(report.problems):,} more")
    rate = report.examples / max(report.seconds, 1e-3)
    print(
        f"{report.folder}: {counted(report.examples, 'record')} in {counted(report.shards, 'shard')}, "
        f"{report.num_bytes:,} bytes, {report.seconds:.1f} s, {rate:,.0f} records/s"
    )
    print("OK: the dataset matches its manifest" if report.ok else counted(report.num_problems, "problem"))
    return 0 if report.ok else 1


def run_template(image: str, output: str | None) -> int:
    """Prints the template's spec, or writes it."""
    from beam_tfr.template import write_spec

    text = write_spec(image, output)
    print(text if output is None else f"wrote {output}", end="" if output is None else "\n")
    return 0


def run_bench(parsed: argparse.Namespace) -> int:
    """Measures reading a dataset, or converting files."""
    options = from_arguments(parsed, ImageOptions)
    of_files = [name for name in ("images", "cores", *vars(options)) if getattr(parsed, name)]
    if parsed.folder and of_files:
        raise UsageError(f"`{of_files[0]}=` has no effect beside DIR: it is for converting files")
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
        found = bench.bench_convert(parsed.input, options, images=parsed.images, cores=parsed.cores)
        text = bench.describe_convert(found)
    print(json.dumps(found, sort_keys=True) if parsed.json else text)
    return 0
