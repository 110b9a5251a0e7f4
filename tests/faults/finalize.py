"""Writing and publishing whose attempts fail anywhere and are made again.

Beam does so with what failed.

Beam's own sink loses records here: a second attempt at `_finalize_write` removes what the first one
has renamed.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from apache_beam.internal import pickler

from beam_tfr import images, storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.options import ImageOptions
from beam_tfr.output import claim
from beam_tfr.output.shard_totals import add_up_shards
from beam_tfr.records.examples import build_record
from beam_tfr.schema.dataset import SOURCES_FOLDER
from beam_tfr.schema.items import ImageRef, Item, Record, Reject
from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan
from beam_tfr.transforms import WriteManifest, WriteShards
from beam_tfr.transforms.writing import _Write
from tests.converted import SAMPLE
from tests.faults.outcome import Outcome
from tests.retries import Attempts, InjectedError, failing

RUN_ID = "run"
LABELS = ["hat", "shoes"]
OPTIONS = ImageOptions(image_size=(8, 8))
MOST_EFFECTS = 60  # an attempt has fewer


@functools.cache
def values() -> list[tuple[ImageRef, Record | Reject]]:
    """Nine photos as records, and a reject in the middle."""
    found: list[tuple[ImageRef, Record | Reject]] = []
    for number, path in enumerate(sorted(SAMPLE.glob("train/hat/*.jpg"))[:9]):
        label = number % 2
        ref = ImageRef(path.name, 1, 0, "train", (LABELS[label],), (label,))
        image = images.convert_image(path.read_bytes(), OPTIONS)
        found.append((ref, Record(build_record("jpeg", image, ref).serialized, image)))
    ref = ImageRef("broken.jpg", 1, 0, "train", ("hat",), (0,))
    found.insert(4, (ref, Reject(ref.key, "ResizeImages", "damaged-image", "cut off")))
    return found


class Job:
    """A plan of some shards for `values`, and the steps that write and publish it."""

    def __init__(self, output: str, num_shards: int) -> None:
        self.output = output
        split = SplitPlan(
            matched=10,
            num_shards=num_shards,
            cuts=[""] * (num_shards - 1),
            class_counts={"hat": 6, "shoes": 4},
        )
        self.plan = Plan(
            name="d",
            suffix=".tfrecord.gz",
            options={
                "compression": "gzip",
                "encoding": "jpeg",
                "image_size": [8, 8],
                "resize": "stretch",
            },
            input_digest="0" * 64,
            labels=LABELS,
            splits={"train": split},
            codecs={},
        )
        self._writer = pickler.dumps(
            _Write(WriteShards(output, name="d", suffix=".tfrecord.gz", level=0))
        )

    def claim(self) -> None:
        claim.claim_folder(self.output, self.plan, run_id=RUN_ID, overwrite=False)

    def shards(self) -> list[list[Item]]:
        """The items of each shard; with more than ten shards, some are empty."""
        num_shards = self.plan.splits["train"].num_shards
        shards = []
        for number in range(num_shards):
            mine = values()[number::num_shards]
            shard = Shard(
                "train", number, num_shards, len(mine), self.plan.digest, self.plan.recipe
            )
            items = [Item(shard, i, ref.key, ref, value) for i, (ref, value) in enumerate(mine)]
            shards.append(items or [Item(shard, 0, "", None, None)])
        return shards

    def writer(self) -> _Write:
        """The step of an attempt, as a worker gets it."""
        return pickler.loads(self._writer)  # type: ignore[no-any-return]

    def write(self, writer: _Write, shards: Sequence[Sequence[Item]]) -> list[ShardInfo]:
        """A bundle of whole shards."""
        writer.start_bundle()
        infos = [info for items in shards for info in writer.process([*items])]
        writer.finish_bundle()
        return infos

    def publish(self, infos: Sequence[ShardInfo]) -> Manifest:
        step = WriteManifest(self.output, plan=None, run_id=RUN_ID, max_rejects=1)  # type: ignore[arg-type]
        (published,) = step._publish(self.plan, [add_up_shards(infos)])
        return published

    def files(self) -> dict[str, bytes]:
        """Everything in the output."""
        found = storage.walk(self.output, lambda _: True)
        names = {entry.path[len(self.output) + 1 :]: entry.path for entry in found}
        return {
            name: storage.read_bytes(path)
            for name, path in names.items()
            if not name.startswith(SOURCES_FOLDER)
        }


def undisturbed(output: str, num_shards: int) -> dict[str, bytes]:
    job = Job(output, num_shards)
    job.claim()
    job.publish(job.write(job.writer(), job.shards()))
    return job.files()


def retried(output: str, num_shards: int, chance: random.Random) -> tuple[dict[str, bytes], int]:
    """What is there after attempts that failed anywhere, and how many there were.

    The success of some was lost.
    """
    job, failed = Job(output, num_shards), 0
    writers = []  # of failed attempts: collected when all is over
    with pytest.MonkeyPatch.context() as patch:
        attempts = Attempts()
        with failing(patch, attempts):

            def tried(step):
                """The result of the last attempt of some."""
                nonlocal failed
                for _ in range(chance.randint(0, 3)):
                    attempts.left = chance.choice(
                        (chance.randrange(8), chance.randrange(MOST_EFFECTS))
                    )
                    failed += 1
                    with contextlib.suppress(InjectedError):
                        step()
                attempts.left = None
                return step()

            def write(shards):
                writers.append(job.writer())
                return job.write(writers[-1], shards)

            tried(job.claim)
            infos = [
                info for items in job.shards() for info in tried(functools.partial(write, [items]))
            ]
            chance.shuffle(infos)
            tried(functools.partial(job.publish, infos))
    for writer in writers[::2]:
        writer.teardown()
    writers.clear()
    gc.collect()
    return job.files(), failed


def trials(folder: Path) -> Callable[[int], Outcome]:
    """A function that runs a trial by its seed."""

    def trial(seed: int) -> Outcome:
        started, chance = time.monotonic(), random.Random(f"finalize {seed}")
        num_shards = chance.randint(1, 12)
        expected = undisturbed(str(folder / f"{seed} whole"), num_shards)
        found, failed = retried(str(folder / f"{seed} retried"), num_shards, chance)
        outcome = Outcome(faults=failed)
        outcome.compare(expected, found)
        if found != expected:
            outcome.problem(f"{sorted(found)}, expected {sorted(expected)}")
        outcome.longest_s = time.monotonic() - started
        return outcome

    return trial
