"""Worker processes are forked once, however the program was started that converts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ENVIRONMENT
from tests.conftest import files_of, wait_for
from tests.converted import converted_photos, once, write_photos
from tests.portable_runners import PROCESSES

MARK = "BEAM_TFR_TEST_PROGRAM"  # environment variable by which the processes of a run are found
NONE_LEFT_S = 2.0
# A kernel of a notebook runs cells one after another, within a loop of asyncio.
NOTEBOOK = """
import asyncio, __main__
async def run_cells():
    for number, cell in enumerate({cells!r}):
        exec(compile(cell, f"<ipython-input-{{number}}>", "exec"), vars(__main__))
asyncio.run(run_cells())
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program without a guard."""
    return f"""
import beam_tfr
print("begun", flush=True)
beam_tfr.convert(
    input="{once("photos", write_photos)}/**/*.jpg", output="{tmp_path}/there", name="d",
    layout="{{split}}/{{label}}/*", progress=False, beam_flags={PROCESSES},
)
print("done")
"""


@pytest.fixture
def mark() -> Iterator[dict[str, str]]:
    """The environment of a program, whose processes are ended at last."""
    environment = ENVIRONMENT | {MARK: uuid.uuid4().hex}
    yield environment
    for pid in living(environment):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def living(environment: dict[str, str]) -> list[int]:
    """The processes that a program with this environment has started."""
    wanted = f"{MARK}={environment[MARK]}".encode()
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["script", "standard input", "notebook", "without standard streams"]
)
def test_a_program_without_a_guard_runs_once(
    way: str, program: str, mark: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(program)
    arguments = {
        "script": [str(script)],
        "standard input": [],
        "notebook": ["-c", NOTEBOOK.format(cells=[program, "print('again')"])],
        "without standard streams": [str(script)],
    }[way]
    command = [sys.executable, *arguments]
    if way == "without standard streams":  # but for standard output, which is read here
        command = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command]
    given = program if way == "standard input" else ""
    run = subprocess.run(
        command,
        input=given,
        env=mark,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "begun\ndone\n" + ("again\n" if way == "notebook" else "")
    assert files_of(tmp_path / "there") == files_of(converted_photos())
    wait_for(lambda: not living(mark), timeout_s=NONE_LEFT_S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "stops"),
    [(0, False), (1, False), (3, False), (3, True)],
    ids=["at once", "forking", "forked", "a stopped worker"],
)
def test_no_process_outlives_a_killed_program(
    workers: int, stops: bool, program: str, mark: dict[str, str]
) -> None:
    run = subprocess.Popen([sys.executable, "-c", program], env=mark, stdout=subprocess.DEVNULL)
    wait_for(lambda: run.poll() is not None or len(living(mark)) > workers)
    if stops:
        os.kill(max(living(mark)), signal.SIGSTOP)  # forked last
    run.kill()
    assert run.wait() == -signal.SIGKILL
    wait_for(lambda: not living(mark), timeout_s=NONE_LEFT_S)


@pytest.mark.slow
def test_an_import_that_fails_is_named_by_the_process_that_forks() -> None:
    program = """
import sys
sys.modules["simplejpeg"] = None
from beam_tfr import worker
worker.fork_workers(1)
"""
    command = [sys.executable, "-c", program]
    with open("/dev/zero", "rb") as endless:
        run = subprocess.run(
            command, stdin=endless, capture_output=True, env=ENVIRONMENT, text=True, check=False
        )
    assert run.returncode == 1
    assert "ModuleNotFoundError" in run.stderr
