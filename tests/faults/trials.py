"""The kinds of faults, and what must be true after each."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from beam_tfr.schema.errors import DataError
from beam_tfr.verification import verify
from tests.fake_gcs import FakeGcs
from tests.faults import living, settled
from tests.faults.mutations import mutated
from tests.faults.outcome import Outcome
from tests.faults.places import LOCK, REJECTS, Bucket, Disk, Place, bury, files_in
from tests.faults.runs import (
    HANGS,
    PHASES,
    Ended,
    Lengths,
    Run,
    engine_flags,
    wait_for_moment,
    wait_until,
)

MOST_CALLS = 4  # until a dataset must be complete
SWITCH = ".beam_tfr/switch.json"
OTHER = (("--image_size", "48"), ("--image_size", "40"))  # make other datasets
STARVED_S = 60.0  # before a run without memory or handles is killed


class Scene:
    """An engine with its photos, and what it makes of them when nothing disturbs it.

    Attributes:
        expected: name -> content of every file.
        lengths: of an undisturbed run.
    """

    def __init__(self, engine: str, photos: Path) -> None:
        self.engine, self.photos = engine, photos
        self.flags = engine_flags(engine)
        self._server = FakeGcs() if engine == "gcs" else None
        with self.place() as place:
            started = time.monotonic()
            run = Run(place, self.flags)
            assert wait_until(lambda: any(name.startswith(LOCK) for name in place.names()), run), (
                run.wait()
            )
            locked = time.monotonic()
            ended = run.wait()
            assert ended.code == 0, ended
            self.lengths = Lengths(locked - started, time.monotonic() - locked)
            self.expected = files_in(place)
        counts = json.loads(self.expected["manifest.json"])["counts"]
        assert (counts["written"], sum(counts["rejected"].values())) == (
            counts["matched"] - REJECTS,
            REJECTS,
        ), counts

    @contextlib.contextmanager
    def place(self) -> Iterator[Place]:
        place: Place
        if self._server is not None:
            place = Bucket(self._server, self.photos)
        else:
            place = Disk(Path(tempfile.mkdtemp(prefix="beam_tfr-faults-")), self.photos)
        try:
            yield place
        finally:
            place.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class Trial:
    """One trial: disturbs runs, calls the command again until it is done, checks."""

    def __init__(self, scene: Scene, place: Place, chance: random.Random) -> None:
        self.scene, self.place, self.chance = scene, place, chance
        self.outcome = Outcome()
        self.runs: list[Run] = []

    def start(
        self, *flags: str, command: Sequence[str] = (), limits: dict[int, int] | None = None
    ) -> Run:
        return Run(self.place, [*self.scene.flags, *flags], command=command, limits=limits)

    def wait(self, run: Run) -> Ended:
        """Waits for the end of a run."""
        self.runs.append(run)
        if (
            run.limits is not None
        ):  # engines and libraries that are starved say so in their way, or hang
            return run.wait(STARVED_S)
        ended = run.wait()
        self.outcome.longest_s = max(self.outcome.longest_s, ended.seconds)
        if ended.code == HANGS:
            self.problem("a run hangs", ended)
        elif "Traceback" in ended.said:
            self.problem("a traceback", ended)
        return ended

    def moment(self, run: Run, phases: tuple[str, ...] = PHASES) -> bool:
        """Waits for a moment; False if the run ended before."""
        phase = wait_for_moment(run, self.place, self.chance, self.scene.lengths, phases)
        if phase:
            self.outcome.kinds[phase] += 1
            self.outcome.faults += 1
        return bool(phase)

    def problem(self, text: str, ended: Ended | None = None) -> None:
        self.outcome.problem(f"{text}: {ended.code} {ended.said[-2000:]}" if ended else text)

    def finish(
        self, *flags: str, command: Sequence[str] = (), expected: dict[str, bytes] | None = None
    ) -> None:
        """Calls the command until it succeeds, and checks what it left."""
        for _ in range(MOST_CALLS):
            ended = self.wait(self.start(*flags, command=command))
            if ended.code == 0:
                return self.check(expected)
            if ended.code == HANGS:
                return None
        return self.problem(f"not done after {MOST_CALLS} calls", ended)

    def check(self, expected: dict[str, bytes] | None = None) -> None:
        """Checks that every file is as expected, and that there is no other.

        A file may also be as an undisturbed run writes it.
        """
        left = [pid for run in self.runs for pid in run.left()]
        if left and self.scene.engine != "prism":  # which notices late that its driver was killed
            self.problem(f"{len(left)} processes outlive their run")
        found, expected = files_in(self.place), expected or self.scene.expected
        if self.place.has_work_folder():
            self.problem(
                f"the work folder is left: {[name for name in found if name.startswith('.')]}"
            )
        if found == expected:
            return
        changed = sorted(
            name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
        )
        self.problem(f"files differ: {', '.join(changed)}")
        self.outcome.compare(expected, found)


def kill(trial: Trial) -> None:
    """Kills the driver, a worker or all of them, up to six times in a row."""
    for _ in range(trial.chance.randint(2, 6)):
        run = trial.start()
        if not trial.moment(run):
            trial.wait(run)
            break
        driver, *workers = run.processes() or [run.pid]
        whom = trial.chance.choice(([driver], workers[-1:] or [driver], [driver, *workers]))
        run.send(signal.SIGKILL, whom)
        trial.wait(run)
    trial.finish()


def stop(trial: Trial) -> None:
    """Stops a run, starts another one, and lets the first one go on."""
    first = trial.start()
    if trial.moment(first):
        first.send(signal.SIGSTOP, first.processes())
        second = trial.wait(trial.start())
        if second.code not in (0, 1):
            trial.problem("a second run", second)
        first.send(signal.SIGCONT, first.processes())
    trial.wait(first)
    trial.finish()


def takeover(trial: Trial) -> None:
    """Stops a run whose process seems to be dead; another one takes over; the first one goes on."""
    first = trial.start()
    if trial.moment(first, ("lock", "plan", "shards", "publish")):
        first.send(signal.SIGSTOP, first.processes())
        bury(trial.place)
        second = trial.start()
        if trial.chance.random() < 0.5:  # both at work
            trial.moment(second)
            first.send(signal.SIGCONT, first.processes())
        ended = trial.wait(second)
        if ended.code not in (0, 1):
            trial.problem("the run that took over", ended)
        first.send(signal.SIGCONT, first.processes())
    trial.wait(first)
    trial.finish()


def overwrite(trial: Trial) -> None:
    """Kills runs that replace a dataset by another one.

    The old one stands until its successor is complete.
    """
    trial.wait(trial.start(*OTHER[0]))
    old = files_in(trial.place)
    for _ in range(trial.chance.randint(2, 6)):
        run = trial.start("--overwrite")
        reached = trial.moment(run)
        run.send(signal.SIGKILL, run.processes())
        trial.wait(run)
        found = files_in(trial.place)
        dataset = {name: data for name, data in found.items() if not name.startswith(".")}
        if dataset not in (old, trial.scene.expected) and (
            "manifest.json" in found or SWITCH not in found
        ):
            trial.problem(f"neither dataset is whole: {sorted(found)}")
        if not reached:
            break
    trial.finish("--overwrite")


def overtaken(trial: Trial) -> None:
    """Suspends one or two runs, takes over with other options, and lets them go on.

    They are suspended as if their machines were.
    """
    sleeping = []
    for flags in OTHER[: trial.chance.randint(1, 2)]:
        run = trial.start(*flags, *(["--overwrite"] if sleeping else []))
        if not trial.moment(run, ("lock", "plan", "shards", "shards", "publish")):
            trial.wait(run)
            break
        run.send(signal.SIGSTOP, run.processes())
        sleeping.append(run)
        bury(trial.place)
    last = trial.start("--overwrite")
    if trial.chance.random() < 0.7:  # all at work
        trial.moment(last)
    else:
        trial.wait(last)
    for run in sleeping:
        run.send(signal.SIGCONT, run.processes())
    for run in sleeping:
        trial.wait(run)
    if last not in trial.runs:
        trial.wait(last)
    trial.finish("--overwrite")


def limited(trial: Trial, kind: int, low: int, high: int) -> None:
    """Runs the command under a limit."""
    trial.outcome.faults += 1
    ended = trial.wait(trial.start(limits={kind: trial.chance.randint(low, high)}))
    if ended.code == 0:
        trial.check()
    trial.finish()


def handles(trial: Trial) -> None:
    limited(trial, resource.RLIMIT_NOFILE, 24, 80)


def memory(trial: Trial) -> None:
    limited(trial, resource.RLIMIT_AS, 800 << 20, 2400 << 20)


def disk(trial: Trial) -> None:
    """A disk that is full at some time of the run."""
    assert isinstance(trial.place, Disk)
    trial.outcome.faults += 1
    most = sum(len(data) + 4096 for data in trial.scene.expected.values())
    with trial.place.quota(trial.chance.randint(4096, most)):
        ended = trial.wait(trial.start())
        if ended.code == 0:
            trial.check()
    trial.finish()


def mount(trial: Trial) -> None:
    """The photos are away for a while, or until the end."""
    assert isinstance(trial.place, Disk)
    run = trial.start()
    if trial.moment(run):
        with trial.place.hidden():
            end = time.monotonic() + trial.chance.choice((0.05, 0.5, 60.0))
            wait_until(lambda: time.monotonic() > end, run)
    trial.wait(run)
    trial.finish()


def quota(trial: Trial) -> None:
    """A service that refuses and loses some requests, and a run killed meanwhile."""
    assert isinstance(trial.place, Bucket)
    trial.place.server.set(log=False, fail_share=trial.chance.uniform(0.02, 0.15))
    run = trial.start()
    if trial.moment(run):
        run.send(signal.SIGKILL, run.processes())
    trial.wait(run)
    trial.finish()


def permission(trial: Trial) -> None:
    """The right to read, write or delete is lost half-way."""
    assert isinstance(trial.place, Bucket)
    run = trial.start()
    if trial.moment(run):
        trial.place.server.set(log=False, denied=[trial.chance.choice(("GET", "POST", "DELETE"))])
    trial.wait(run)
    trial.place.server.set(log=False)
    trial.finish()


def corrupt(trial: Trial) -> None:
    """Changes files that a killed run left, or those of a finished one."""
    run = trial.start()
    if trial.moment(run, ("shards", "shards", "publish", "lock")):
        run.send(signal.SIGKILL, run.processes())
    trial.wait(run)
    place, chance = trial.place, trial.chance
    names = sorted(place.names())
    published = "manifest.json" in names
    for name in chance.sample(names, min(len(names), chance.randint(1, 4))):
        trial.outcome.faults += 1
        place.write(name, mutated(place.read(name), chance))
    if published:
        _after_the_end(trial)
        return
    ended = trial.wait(trial.start())
    if (
        "another run holds" in ended.said
    ):  # the lock is of another machine now; this is the cure that it names
        for name in [name for name in place.names() if name.startswith(LOCK)]:
            place.delete(name)
        ended = trial.wait(trial.start())
    if ended.code and "--overwrite" in ended.said:
        trial.wait(trial.start("--overwrite"))
    trial.finish()


def _after_the_end(trial: Trial) -> None:
    """What was published and then changed is found by `verify`, and replaced on demand."""
    with tempfile.TemporaryDirectory() as folder:
        files = {
            name: data for name, data in files_in(trial.place).items() if not name.startswith(".")
        }
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        with contextlib.suppress(DataError):
            if verify(folder).ok and files != trial.scene.expected:
                trial.outcome.undetected += 1
                trial.problem("verify finds nothing wrong")
    trial.wait(trial.start())
    trial.wait(trial.start("--overwrite"))
    trial.finish()


Kind = Callable[[Trial], None]
EVERYWHERE: dict[str, Kind] = {
    "kill": kill,
    "stop": stop,
    "takeover": takeover,
    "overwrite": overwrite,
    "overtaken": overtaken,
    "update": living.update,
    "settled": settled.settled,
    "corrupt": corrupt,
    "handles": handles,
    "memory": memory,
}
KINDS: dict[str, dict[str, Kind]] = {
    **{
        key: {**EVERYWHERE, "mount": mount, "disk": disk}
        for key in ("threads", "processes", "prism")
    },
    "gcs": {**EVERYWHERE, "quota": quota, "permission": permission},
}


def run_trial(scene: Scene, kind: str, seed: int) -> Outcome:
    """One trial; the same seed makes the same choices, though not at the same instant."""
    with scene.place() as place:
        trial = Trial(scene, place, random.Random(f"{scene.engine} {kind} {seed}"))
        KINDS[scene.engine][kind](trial)
        return trial.outcome
