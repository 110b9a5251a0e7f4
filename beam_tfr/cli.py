"""Runs the command line: parses arguments, runs a command, and reports errors."""

import argparse
import atexit
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

from beam_tfr.commands import (
    bench,
    convert,
    diff,
    duplicates,
    export,
    inspection,
    plan,
    remove,
    repair,
    report,
    update,
    verify,
)
from beam_tfr.commands.calls import refuse_arguments
from beam_tfr.commands.parser import Parser
from beam_tfr.console import process, signals
from beam_tfr.console.terminal import (
    discard_stdout,
    open_standard_streams,
    print_message,
    shorten,
)
from beam_tfr.options import suggest_name
from beam_tfr.schema.errors import (
    TRACEBACK_VARIABLE,
    BeamTfrError,
    UsageError,
    check_text,
    describe_os_error,
    explain_starved,
)
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.schema.untrusted import quote
from beam_tfr.version import __version__

MODULES = {
    "plan": plan,
    "convert": convert,
    "verify": verify,
    "update": update,
    "remove": remove,
    "repair": repair,
    "inspect": inspection,
    "diff": diff,
    "duplicates": duplicates,
    "report": report,
    "export": export,
    "bench": bench,
}
TAKE_BEAM_FLAGS = ("plan", "convert", "verify", "update", "remove", "repair", "export")
STEPS = """getting started:
  beam-tfr convert --input photos --output /data/photos     photos/cat/1.jpg belongs to class cat
  beam-tfr verify /data/photos
  in Python: from beam_tfr.reader import load
             train = load("/data/photos", split="train", batch_size=32)

help: beam-tfr COMMAND --help shows essential options, beam-tfr COMMAND --help-all every option

exit codes: 0 done, 1 the data is wrong or the run failed, 2 the call is wrong, 130 interrupted
"""


_STORE = argparse._StoreAction  # keeps only the last value


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser of all commands."""
    parser = Parser(
        prog="beam-tfr",
        description="Converts folders of images into sharded, verified TFRecord datasets.",
        epilog=STEPS,
    )
    parser.add_argument("--version", action="version", version=f"beam-tfr {__version__}")
    parser.set_defaults(known=["--help", "--version"], single=[])
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in MODULES.items():
        description, heading, calls = str(module.__doc__).partition("examples:\n")
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=description,
            epilog=heading + calls,
            takes_beam_flags=name in TAKE_BEAM_FLAGS,
        )
        module.add_flags(command)
        command.add_show_all()
        actions = command._option_string_actions
        single = [name for name, action in actions.items() if type(action) is _STORE]
        command.set_defaults(run=module.run, known=[*actions], single=single)
    return parser


def run() -> NoReturn:
    """Runs `main` and exits with its code; this is the console script."""
    process.program = _name_program(sys.argv[1:])
    open_standard_streams()
    # Google's libraries warn several times per run about every Python except the newest.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
    try:
        code = main()
    except SystemExit as ended:  # raised by --help, --help-all or --version
        code = int(ended.code or 0)
    signals.end_at_once()
    sys.stdout.flush()
    if code == signals.INTERRUPTED:
        _kill_servers()
        os._exit(code)
    if signals.arrived.is_set():  # the exception of the signal was lost
        _kill_servers()
        signals.exit_interrupted()
    atexit._run_exitfuncs()  # end an engine that was started
    # Threads of a failed engine would keep the process alive, print, or abort it.
    os._exit(code)


def _kill_servers() -> None:
    """Kills the servers of an engine, if one was started."""
    beam_internals = sys.modules.get("beam_tfr.engine.beam_internals")
    if beam_internals:
        beam_internals.kill_servers()


def _name_program(arguments: Sequence[str]) -> str:
    """Returns the program and its command, for messages."""
    return " ".join(["beam-tfr", *(name for name in arguments[:1] if name in MODULES)])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        make_parser().print_help()
        return 0
    program = _name_program(arguments)
    try:
        code = _run_command(arguments, program)
        sys.stdout.flush()
        return code
    except BeamTfrError as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exception(error)
        message = f"{program}: {spell_as_flags(str(error))}"
        print_message(*message.split("\n"))
        return error.exit_code
    except (MemoryError, RuntimeError) as error:
        explanation = explain_starved(error)
        if not explanation:
            raise
        print_message(f"{program}: {explanation}")
        return 1
    except KeyboardInterrupt:
        print_message(f"{program}: {signals.ADVICE}")
        return signals.INTERRUPTED
    except BrokenPipeError:  # the reader of standard output has closed it
        discard_stdout()
        return 1
    except OSError as error:  # standard output may go to a full disk, for example
        discard_stdout()
        print_message(f"{program}: {describe_os_error(error)}")
        return 1


def _check_argument(argument: str) -> None:
    """Checks an argument of any flag.

    Raises:
        UsageError: the argument cannot be part of a path.
    """
    try:
        check_text(argument)
    except ValueError as error:
        raise UsageError(f"{quote(argument)}: {error}") from None


def _check_repeated(arguments: Sequence[str], parsed: argparse.Namespace, program: str) -> None:
    """Warns about flags that accept one value but occur more than once; the last value counts.

    So a script can append flags that replace earlier flags.

    Raises:
        UsageError: a flag of `remove` is repeated, so the command would not remove all images that
            the user named.
    """
    flags = [argument.partition("=")[0] for argument in arguments]
    for name in parsed.single:
        if flags.count(name) < 2:
            continue
        if parsed.command == "remove":
            raise UsageError(
                f"{name} is specified more than once, but only one counts: specify it once"
            )
        print_message(f"{program}: {name} is specified more than once: the last one counts")


def _run_command(arguments: Sequence[str], program: str) -> int:
    name = arguments[0]
    if name not in MODULES and not name.startswith("-"):
        hint = suggest_name(name, (*MODULES, "--help", "--version"))
        if not hint:
            hint = f"the commands are: {', '.join(MODULES)}"
        raise UsageError(f"{shorten(name)}: unknown command; {hint}")
    for argument in arguments:
        _check_argument(argument)
    parsed, others = make_parser().parse_known_args(arguments)
    _check_repeated(arguments, parsed, program)
    if others and parsed.command not in TAKE_BEAM_FLAGS:
        refuse_arguments(parsed, others, program)
    code: int = parsed.run(parsed, others)
    return code
