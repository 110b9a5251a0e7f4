"""Seeded changes of a finished dataset, each of which `verify` must find."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable
from pathlib import Path

from apache_beam.io.tfrecordio import _TFRecordUtil

from beam_tfr.dataset.metadata.card import is_own_card
from beam_tfr.records.shard_file import open_shard_file
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.dataset import CARD_FILE
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.verification import verify
from tests.converted import convert, spoil, write_photos
from tests.faults.outcome import Outcome

LEVELS = {
    "": 0,
    "--encoding raw": 3,
    "--compression none": None,
}  # options of the datasets -> gzip level


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Other bytes than these.

    A flipped bit, a missing or doubled part, another one, zeros, two swapped parts.
    """
    while True:
        changed = bytearray(data)
        start, length = chance.randrange(len(data) + 1), chance.choice((1, 2, 8, 64, 4096))
        part = slice(start, start + length)
        match chance.randrange(8):
            case 0 | 1 | 2 if start < len(data):
                changed[start] ^= 1 << chance.randrange(8)
            case 3:
                del changed[start:]
            case 4:
                del changed[part]
            case 5:
                changed[start:start] = chance.choice(
                    (chance.randbytes(length), bytes(changed[part]))
                )
            case 6:
                changed[part] = chance.choice(
                    (bytes(len(changed[part])), chance.randbytes(len(changed[part])))
                )
            case 7:
                other = chance.randrange(len(data) + 1)
                one, two = changed[part], changed[other : other + length]
                if len(one) == len(two):
                    changed[part], changed[other : other + length] = two, one
        if changed != data:
            return bytes(changed)


def container(records: list[bytes], level: int | None) -> bytes:
    """A shard file without damage."""
    buffer = io.BytesIO()
    file = open_shard_file(buffer.write, level)
    for record in records:
        _TFRecordUtil.write_record(file, record)
    file.close()
    return buffer.getvalue()


def shuffled(items: list[bytes], chance: random.Random) -> list[bytes]:
    """A list with an item less or one more, or with two swapped."""
    items = [*items]
    one, two = chance.randrange(len(items)), chance.randrange(len(items))
    match chance.randrange(3):
        case 0:
            del items[one]
        case 1:
            items.insert(two, items[one])
        case 2:
            items[one], items[two] = items[two], items[one]
    return items


class Dataset:
    """A finished dataset in a folder of its own, which is changed and restored."""

    def __init__(self, folder: Path, level: int | None) -> None:
        self.folder, self._level = folder, level
        self.sound = {
            path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()
        }
        self._shards = [name for name in self.sound if name.startswith("d-")]
        self._records = {name: [*RecordFile(str(folder / name))] for name in self._shards}
        for name, records in self._records.items():
            assert (
                container(records, level) == self.sound[name]
            )  # so that only what is meant is changed

    def mutation(self, chance: random.Random) -> tuple[str, dict[str, bytes | None]]:
        """A kind of change, and the files that it changes -> their content, or None."""
        while True:
            kind, changed = self._mutation(chance)
            card = changed.get(CARD_FILE)
            if card and not is_own_card(card):
                continue  # somebody's own, which may say what it likes
            if any(self.sound.get(name) != data for name, data in changed.items()):
                return kind, changed

    def _mutation(self, chance: random.Random) -> tuple[str, dict[str, bytes | None]]:
        name, other = chance.choice([*self.sound]), chance.choice([*self.sound])
        shard, second = chance.choice(self._shards), chance.choice(self._shards)
        match chance.randrange(20):
            case 0:
                return "two files swapped", {name: self.sound[other], other: self.sound[name]}
            case 1:
                return "a file missing", {name: None}
            case 2:
                return "a file more", {shard.replace("-of-0000", "-of-0001"): self.sound[shard]}
            case 3:
                lines = self.sound["rejects.jsonl"].splitlines(keepends=True)
                return "rejects moved", {"rejects.jsonl": b"".join(shuffled(lines, chance))}
            case 4 | 5 | 6:
                return "records moved", {
                    shard: container(shuffled(self._records[shard], chance), self._level)
                }
            case 7:
                first, last = [*self._records[shard]], [*self._records[second]]
                first[0], last[-1] = last[-1], first[0]
                changed = {
                    shard: container(first, self._level),
                    second: container(last, self._level),
                }
                return "records exchanged", changed
            case 8:
                records = [*self._records[shard]]
                number = chance.randrange(len(records))
                records[number] = mutated(records[number], chance)
                return "a record changed", {shard: container(records, self._level)}
        return "bytes changed", {name: mutated(self.sound[name], chance)}

    def is_found(self, changed: dict[str, bytes | None]) -> bool:
        """Whether `verify` finds a change, which is then undone."""
        for name, data in changed.items():
            if data is None:
                (self.folder / name).unlink()
            else:
                (self.folder / name).write_bytes(data)
        try:
            return not verify(str(self.folder), threads=1).ok
        except BeamTfrError:
            return True
        finally:
            for name in changed:
                (self.folder / name).unlink(missing_ok=True)
                if name in self.sound:
                    (self.folder / name).write_bytes(self.sound[name])


def trials(folder: Path) -> Callable[[int], Outcome]:
    """A function that tries one mutation of one of three small datasets, by its seed."""
    spoiled = folder / "photos"
    write_photos(spoiled)
    spoil(spoiled)
    datasets = []
    for number, (flags, level) in enumerate(LEVELS.items()):
        more = (
            f"--layout {{split}}/{{label}}/* --num_shards train=3,test=2 --max_rejects 7 "
            f"--image_size 16 {flags}"
        )
        convert(f"{spoiled}/**/*.jpg", folder / str(number), more)
        datasets.append(Dataset(folder / str(number), level))

    def trial(seed: int) -> Outcome:
        started, outcome = time.monotonic(), Outcome(faults=1)
        chance = random.Random(f"mutation {seed}")
        dataset = chance.choice(datasets)
        kind, changed = dataset.mutation(chance)
        outcome.kinds[kind] += 1
        if not dataset.is_found(changed):
            outcome.undetected = 1
            outcome.problem(f"{kind}: {', '.join(changed)} in {dataset.folder}")
        outcome.longest_s = time.monotonic() - started
        return outcome

    return trial
