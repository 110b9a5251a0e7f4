"""Starts the command in processes of its own, and finds moments and processes to disturb."""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from beam_tfr import cli
from beam_tfr.output.sidecars import RECORDS
from tests.faults.places import Place
from tests.portable_runners import build_prism

ROOT = Path(__file__).parents[2]
MARK = "BEAM_TFR_FAULTS"  # environment variable by which the processes of a run are found
PATIENCE_S = 300.0
STRICT_FLAGS = (
    "--name d --layout {split}/{label}/* --num_shards train=9,validation=3,test=3 --image_size 96"
)
FLAGS = f"{STRICT_FLAGS} --max_rejects 9"


def engine_flags(engine: str) -> list[str]:
    if engine == "processes":
        return ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    if engine == "prism":
        binary = build_prism()
        assert binary, "Prism is not installed, and Go is not there to build it"
        return [
            "--runner=PrismRunner",
            f"--prism_location={binary}",
            "--experiments=disable_prism_server_singleton",
        ]
    return []


def call(*command: str) -> None:
    """Calls the command in this process."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main([*command, "--quiet"]) == 0


class Ended(NamedTuple):
    code: int
    said: str
    seconds: float


class Run:
    """A call of the command, with all the processes that it starts.

    Args:
        command: the command and its own flags; a conversion by default.
        limits: of the process -> value, as of `resource.setrlimit`.
    """

    def __init__(
        self,
        place: Place,
        flags: Sequence[str],
        *,
        command: Sequence[str] = (),
        limits: dict[int, int] | None = None,
    ) -> None:
        self.mark, self.limits = uuid.uuid4().hex, limits
        self._said = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed by `wait`
        command = command or [
            "convert",
            "--input",
            place.input,
            "--output",
            place.output,
            *FLAGS.split(),
        ]
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "beam_tfr", *command, *flags],
            cwd=ROOT,
            env={**os.environ, **place.environment, "PYTHONPATH": str(ROOT), MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,
            preexec_fn=lambda: [
                resource.setrlimit(kind, (soft, soft)) for kind, soft in (limits or {}).items()
            ],
        )
        self.pid = self._process.pid

    def ended(self, within_s: float = 0.0) -> bool:
        """Whether it ends within some seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self._process.poll() is not None

    def wait(self, patience_s: float = PATIENCE_S) -> Ended:
        """Waits for its end; a run that hangs is killed, and its code is 'hangs'."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL, self.processes())
            self._process.wait()
            code = HANGS
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        self._said.close()
        return Ended(code, said, time.monotonic() - self._started)

    def processes(self) -> list[int]:
        """Of all processes that this run has started and that live, the ids; its own is first."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError):  # it has just ended, or is another user's
                    if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                        found.append(int(name))
        return sorted(found, key=lambda pid: (pid != self.pid, pid))

    def send(self, number: signal.Signals, processes: Sequence[int]) -> None:
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def left(self, patience_s: float = 20.0) -> list[int]:
        """The processes that outlive it for so long; they are ended."""
        end = time.monotonic() + patience_s
        while (found := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        self.send(signal.SIGKILL, found)
        return found


HANGS = 999


class Lengths(NamedTuple):
    """Of an undisturbed run, in seconds: until its lock is there, and from then on."""

    start: float
    work: float


PHASES = ("start", "lock", "plan", "shards", "shards", "publish")


def wait_for_moment(
    run: Run, place: Place, chance: random.Random, lengths: Lengths, phases: Sequence[str]
) -> str:
    """Waits for a random moment in a random phase.

    Returns the phase, or "" if the run ended before.

    Moments lie in the whole length of a run, and closer together where files appear.
    """
    phase = chance.choice(phases)
    before = sum(RECORDS in name for name in place.names())
    more = chance.randint(1, 12)

    def reached() -> bool:
        names = place.names()
        if phase == "lock":
            return any(name.startswith(".beam_tfr/lock.") for name in names)
        if phase == "plan":
            return ".beam_tfr/plan.json" in names
        if phase == "shards":
            shards = sum(RECORDS in name for name in names)
            return shards >= min(before + more, 15) and ".beam_tfr/plan.json" in names
        return ".beam_tfr/switch.json" in names

    longest = {
        "start": lengths.start,
        "lock": lengths.work,
        "plan": 0.3,
        "shards": 0.05,
        "publish": 0.01,
    }[phase]
    delay = chance.uniform(0, longest)
    if phase != "start" and not wait_until(reached, run):
        return ""
    end = time.monotonic() + delay
    return phase if wait_until(lambda: time.monotonic() >= end, run) else ""


def wait_until(condition: Callable[[], bool], run: Run) -> bool:
    """Whether the condition was true before the run ended."""
    while not condition():
        if run.ended():
            return False
        time.sleep(0.0005)
    return True
