"""Writes a dataset in a format of other programs, with the bytes of its images as they are.

examples:
  python examples/export /data/photos /data/folders --format folder
      a file for each image, metadata.jsonl, and for datasets with boxes instances_train.json and so on, as in COCO
  python examples/export /data/photos /data/tars --format webdataset --split train
  python examples/export /data/photos /data/hats --format parquet --where label=hat
      for Hugging Face: datasets.load_dataset("/data/hats")
  python examples/export /data/photos /data/tfds --format tfds
      for TensorFlow Datasets: tfds.load("photos", data_dir="/data/tfds")
  python examples/export /data/photos /data/index --format dali-index
      an index for each shard, which must not be compressed

After an interruption, the same command resumes from the finished shards. export.json says whether the export is
complete. Beam's own options are accepted too: --runner=DataflowRunner exports from and to gs:// on many machines.
"""

import argparse
import atexit
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

from beam_tfr.commands.calls import add_dataset, check_flags, display, print_json
from beam_tfr.console.terminal import counted, discard_stdout, open_standard_streams, printable, say
from beam_tfr.schema.errors import TRACEBACK_VARIABLE, BeamTfrError, InterruptedRunError, UsageError, as_flags

PROGRAM = "export"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line, to which Beam's flags are unknown."""
    about, examples, calls = str(__doc__).partition("examples:\n")
    parser = _Parser(
        prog="python examples/export",
        description=about,
        epilog=examples + calls,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_dataset(parser)
    parser.add_argument("output", metavar="OUT", help="empty folder for the export, on disk or gs://")
    parser.add_argument(
        "--format", metavar="NAME", required=True, help="folder, webdataset, parquet, tfds or dali-index"
    )
    parser.add_argument("--split", metavar="NAME", help="split to export, or several: train+test (default: all)")
    parser.add_argument("--where", metavar="NAME=VALUE", help="export only records with this value: label=hat")
    parser.set_defaults(command=PROGRAM, known=[*parser._option_string_actions])
    return parser


def start() -> NoReturn:
    """Runs `main` and exits with its code."""
    open_standard_streams()
    # Google's libraries warn about every Python but the newest, several times a run.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
    code = main()
    sys.stdout.flush()
    if code:  # threads of an engine that failed or was interrupted would keep the process alive
        if code != InterruptedRunError.exit_code:
            atexit._run_exitfuncs()  # which end an engine that was started
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exports a dataset as the arguments say; returns the exit code."""
    try:
        parsed, others = make_parser().parse_known_args(arguments)
        _export(parsed, others)
        sys.stdout.flush()
    except BeamTfrError as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exception(error)
        say(f"{PROGRAM}: {as_flags(str(error))}")
        return error.exit_code
    except KeyboardInterrupt:
        say(f"{PROGRAM}: interrupted: run the same command again")
        return InterruptedRunError.exit_code
    except OSError as error:  # standard output takes no more
        discard_stdout()
        if not isinstance(error, BrokenPipeError):  # whose reader has seen enough; else the disk is full
            say(f"{PROGRAM}: {error}")
        return 1
    return 0


def _export(parsed: argparse.Namespace, others: Sequence[str]) -> None:
    """Exports a dataset and prints the result; `others` are Beam's flags."""
    with display(parsed) as shown:
        check_flags(parsed, others)  # which imports Beam
        from examples.export.run import export

        done = export(
            parsed.folder,
            parsed.output,
            parsed.format,
            split=parsed.split,
            where=parsed.where,
            beam_flags=others,
            progress=shown,
            say=shown.say,
        )
    if parsed.json:
        about = {"output": done.folder, "format": done.format, "splits": done.splits, "images": done.images}
        print_json({**about, "complete_already": not done.fresh})
    else:
        print(printable(f"exported: {counted(done.images, 'image')} to {done.folder}"))
