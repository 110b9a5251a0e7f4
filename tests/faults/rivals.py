"""Runs that take over from each other.

The output's protocol alone, in processes of their own, suspended anywhere.

A run here claims a folder, writes two small shards and publishes them, without Beam and without
images, so a thousand trials take minutes. `tests/test_interleavings.py` interleaves the same runs
at each request.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import parse_manifest
from beam_tfr.dataset.metadata import metadata_files
from beam_tfr.output import claim, lock, publish, shard_totals, sidecars, switch
from beam_tfr.schema.dataset import SUMS_FILE, sha256_hex
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.schema.items import ImageRef, Reject
from beam_tfr.schema.naming import contents_name
from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan, WrittenFile
from tests.fake_gcs import FakeGcs
from tests.faults.outcome import Outcome
from tests.faults.places import Bucket, Disk, Place, bury, files_in

SHARDS = 2
RUNS = 3
REQUESTS = 70  # of an undisturbed run, about
KINDS_OF_REQUESTS = (
    "find",
    "walk",
    "list_folder",
    "list_files",
    "read_bytes",
    "create",
    "write_bytes",
    "move",
    "delete",
)
HANGS_S = 60.0
ENDS = {"published": 0, "complete": 10}  # exit codes
REFUSED = 20


def plan_of(options: int, files: int) -> Plan:
    return Plan(
        name="d",
        suffix=".tfrecord.gz",
        options={"compression": "gzip", "encoding": "row", "seed": options},
        input_digest=f"{files:064x}",
        labels=None,
        splits={
            "train": SplitPlan(matched=2 * SHARDS, num_shards=SHARDS, cuts=["80"], class_counts={})
        },
        codecs={},
    )


def convert(output: str, run_id: str, plan: Plan, *, overwrite: bool) -> str:
    """A run, from its lock to its end; returns what came of it."""
    try:
        if claim.claim_folder(output, plan, run_id=run_id, overwrite=overwrite).complete:
            claim.remove_work_folder(output, run_id)
            return "complete"
        infos = [write_shard(output, run_id, plan, number) for number in range(SHARDS)]
        totals = shard_totals.merge_totals(plan, [shard_totals.add_up_shards(infos)])
        claimed = claim.find_claim(output, run_id)
        lock.check_lock(output, run_id)
        switch.complete_switch(output)
        if publish.find_published(output, plan, totals, claimed) is None:
            publish.publish_dataset(
                output, plan, totals, claimed, check_lock=lambda: lock.check_lock(output, run_id)
            )
        claim.remove_work_folder(output, run_id)
        return "published"
    except (BeamTfrError, OSError, storage.AlreadyExistsError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        lock.release_lock(output, run_id)


def write_shard(output: str, run_id: str, plan: Plan, number: int) -> ShardInfo:
    """A shard, with bytes that tell the plan and the run; one of its two images is a reject."""
    shard = Shard("train", number, SHARDS, 2, plan.digest, plan.recipe)
    refs = [ImageRef(plan.input_digest, 1, 1, "train").encode()]
    if finished := sidecars.read_finished(output, shard, refs):
        return finished
    data = f"{run_id:9}{plan.digest}{number}".encode()  # of one length
    lock.check_lock(output, run_id)
    info = ShardInfo(shard=shard, num_examples=1, num_bytes=len(data), sha256=sha256_hex(data))
    info.rejected, info.records_sha256 = {"not-found": 1}, info.sha256
    info.file, info.built = f"d-{shard.name}.tfrecord.gz", sidecars.unique_name(shard.name)
    with storage.create(storage.work_path(output, info.built), scratch="", replace=False) as file:
        file.write(data)
        info.generation = file.commit()
    built = sidecars.unique_name(shard.name, sidecars.CONTENTS)
    with storage.create(storage.work_path(output, built), scratch="", replace=False) as file:
        file.write(data)
        info.contents = WrittenFile(built, len(data), info.sha256, file.commit())
    lines = [Reject(f"{run_id}/{number}", "read", "not-found", "gone").to_json()]
    return sidecars.write_sidecar(output, info, lines, refs=refs)


def check(files: Mapping[str, bytes]) -> None:
    """Checks that all files are those of the manifest, if there is one; takes name -> content.

    Raises:
        AssertionError: they are not.
    """
    if "manifest.json" not in files:
        return
    beside = {name for name in files if ".beam_tfr" not in name} - {"manifest.json"}
    assert {name: sha256_hex(files[name]) for name in beside} == _expected(files["manifest.json"])


@functools.lru_cache
def _expected(data: bytes) -> dict[str, str]:
    """Name -> SHA-256 of the files beside a manifest of these bytes."""
    fields = json.loads(data)
    expected = {
        shard["file"]: shard["sha256"]
        for split in fields["splits"].values()
        for shard in split["shards"]
    }
    expected |= {
        contents_name(file): sha256 for file, sha256 in expected.items()
    }  # `write_shard` writes equal bytes
    expected["rejects.jsonl"] = fields["rejects"]["sha256"]
    sums = "".join(
        f"{expected[name]}  {name}\n" for name in sorted(expected) if name.startswith("contents/")
    )
    for name, of in metadata_files(parse_manifest(data, "")).items():
        expected[name] = sha256_hex(of)
        sums += f"{expected[name]}  {name}\n"
    return expected | {SUMS_FILE: sha256_hex(sums.encode())}


class Rivalry:
    """Runs into one folder that suspend themselves and are taken over.

    Each is taken over as if its machine had gone.

    Args:
        context: makes processes.
        place: where they write.
        chance: decides.
    """

    def __init__(self, context: ForkServerContext, place: Place, chance: random.Random) -> None:
        self._context, self._place, self._chance = context, place, chance
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Makes the trial."""
        chance = self._chance
        if chance.random() < 0.5:
            self._end(self._start("first", plan_of(9, 9), stops=0))
        runs: list[BaseProcess] = []
        for number in range(RUNS):
            if runs:
                bury(self._place)
                self.outcome.faults += 1
            plan = plan_of(chance.randint(0, 1), chance.randint(0, 1))
            runs.append(self._start(f"run {number}", plan, stops=chance.randint(1, 4)))
            for run in (runs[-1], *chance.choices(runs, k=chance.randint(0, 2))):
                self._go_on(run)
                if chance.random() < 0.7:  # else the next one is at work at the same time
                    self._settle()
        while living := [run for run in runs if run.is_alive()]:
            self._go_on(chance.choice(living))
            self._settle()
        for run in runs:
            self._end(run)
        last = plan_of(5, 5)
        self._end(self._start("last", last, stops=0))
        self._check("at the end")
        files = files_in(self._place)
        published = json.loads(files.get("manifest.json", b"{}")).get("options")
        if published != last.options or any(".beam_tfr" in name for name in files):
            self.outcome.problem(f"the last run did not publish, or left files: {sorted(files)}")
        return self.outcome

    def _start(self, name: str, plan: Plan, *, stops: int) -> BaseProcess:
        at = {self._chance.randrange(REQUESTS) for _ in range(stops)}
        run = self._context.Process(target=_convert, args=(self._place.output, name, plan, at))
        run.start()
        return run

    def _go_on(self, run: BaseProcess) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pid or 0, signal.SIGCONT)

    def _settle(self) -> None:
        """Waits until each run has ended or suspended itself, and checks the files."""
        end = time.monotonic() + HANGS_S
        while any(_is_at_work(run) for run in multiprocessing.active_children()):
            if time.monotonic() > end:
                self.outcome.problem("a run hangs")
                break
            time.sleep(0.002)
        self._check("while all are suspended")

    def _end(self, run: BaseProcess) -> None:
        run.join(HANGS_S)
        if run.exitcode not in (*ENDS.values(), REFUSED):
            self.outcome.problem(f"a run ended with {run.exitcode}")
            run.kill()
        self.outcome.kinds[f"exit {run.exitcode}"] += 1

    def _check(self, when: str) -> None:
        try:
            check(files_in(self._place))
        except AssertionError as error:
            self.outcome.problem(f"{when}: {error}")


def _is_at_work(run: BaseProcess) -> bool:
    try:
        return Path(f"/proc/{run.pid}/stat").read_text().rpartition(") ")[2][0] not in "TZX"
    except OSError:
        return False


def _convert(output: str, run_id: str, plan: Plan, stops: set[int]) -> None:
    """A run that suspends itself before requests of these numbers."""
    requests = itertools.count()

    def counted(request: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if next(requests) in stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        return request(*arguments, **named)

    for name in KINDS_OF_REQUESTS:
        setattr(storage, name, functools.partial(counted, getattr(storage, name)))
    sys.exit(ENDS.get(convert(output, run_id, plan, overwrite=True), REFUSED))


def trials(folder: Path) -> Callable[[int], Outcome]:
    """A function that runs a trial by its seed: on a disk if that is even, else on gs://."""
    (folder / "photos").mkdir(parents=True)
    server = FakeGcs()
    atexit.register(server.close)
    os.environ["STORAGE_EMULATOR_HOST"] = server.address  # before the processes' own server starts
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.rivals", "google.cloud.storage", "google_crc32c"])

    def trial(seed: int) -> Outcome:
        chance = random.Random(f"rivals {seed}")
        kind = "gcs" if seed % 2 else "disk"
        place: Place = (
            Bucket(server, folder / "photos")
            if seed % 2
            else Disk(folder / f"{seed}", folder / "photos")
        )
        started = time.monotonic()
        with contextlib.closing(place):
            outcome = Rivalry(context, place, chance).run()
        outcome.kinds[kind] += 1
        outcome.longest_s = time.monotonic() - started
        return outcome

    return trial
