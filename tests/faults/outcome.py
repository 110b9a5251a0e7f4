"""What trials found."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections import Counter
from pathlib import Path

from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile


@dataclasses.dataclass
class Outcome:
    """What one trial did and found, or the sum of several.

    Attributes:
        trials: how many.
        faults: kills, stops, corrupted files, mutations, failed attempts.
        lost, duplicated: records.
        undetected: changes that `verify` took for sound.
        failed: trials with a problem.
        problems: all that must not be, in words.
        kinds: when something was killed, or how it was changed -> how often.
        longest_s: the longest call of the command, or trial.
    """

    trials: int = 1
    faults: int = 0
    lost: int = 0
    duplicated: int = 0
    undetected: int = 0
    failed: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    kinds: Counter[str] = dataclasses.field(default_factory=Counter)
    longest_s: float = 0.0

    def problem(self, text: str) -> None:
        self.failed = 1
        self.problems.append(text)

    def compare(self, expected: dict[str, bytes], found: dict[str, bytes]) -> None:
        """Counts the records that one set of files has more often than another."""
        before, after = keys_of(expected), keys_of(found)
        self.lost += (before - after).total()
        self.duplicated += (after - before).total()

    def add(self, other: Outcome) -> None:
        for name in ("trials", "faults", "lost", "duplicated", "undetected", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems += other.problems
        self.kinds += other.kinds
        self.longest_s = max(self.longest_s, other.longest_s)


def keys_of(files: dict[str, bytes]) -> Counter[bytes]:
    """The keys of all records that can be read."""
    keys: Counter[bytes] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            if name.startswith("d-"):
                path = Path(folder, name)
                path.write_bytes(data)
                with contextlib.suppress(Exception):  # what is damaged is lost
                    for record in RecordFile(str(path)):
                        keys[parse_example(record)["image/filename"][0]] += 1
    return keys
