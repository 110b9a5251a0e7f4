"""Disturbs the real command, and shows what was lost.

    python -m tests.faults --trials 40 --seed 1 [--engine threads …] [--kind kill …]
    python -m tests.faults --kind mutations --trials 10000
    python -m tests.faults --kind finalize --trials 200
    python -m tests.faults --kind hostile
    python -m tests.faults --kind large --trials 100
    python -m tests.faults --kind unwritten --trials 20
    python -m tests.faults --kind rivals --trials 1000
    python -m tests.faults --kind tables archives --trials 4000
    python -m tests.faults --kind hurting-tables hurting-archives hurting-masks --trials 3

The kinds, and what happens:

    kill        SIGKILL ends the command, one of its worker processes, or all of them, two to six
                times in a row
    stop        all processes are suspended, a second run starts, and the first one continues
    takeover    the lock of a suspended run looks as if its process had died: a second run takes
                over, and the first one continues, perhaps at the same time
    overtaken   one or two suspended runs are taken over by others with other options, and continue
    overwrite   a dataset is replaced by runs that are killed; after each, either dataset must be
                whole, or the next run completes it
    update      a dataset lives through eight changes of its input, updates and removals, each
                killed several times; the old or the new dataset must be whole, and in the end
                equal to a fresh conversion
    settled     a conversion and an update with --stratify, {group} and --duplicates, of two runs
                each, are killed at any moment in both
    rivals      three runs into one folder, without Beam and images, suspend themselves before any
                request, are taken over and wake up, on a disk and on gs://
    corrupt     up to four files of a killed or finished run are changed: shards, sidecars, lock,
                plan, manifest, rejects
    handles, memory, disk
                the run has few open files, little memory, or a disk that fills up
    mount       the photos disappear for a while
    quota, permission
                Cloud Storage refuses or loses some requests; from some moment on, it refuses one
                kind of request
    mutations   `verify` must find one change to a finished dataset: bits, bytes, truncated files,
                whole records with valid checksums, and swapped, missing or extra files
    finalize    attempts to write and publish fail anywhere, or succeed but are reported as failed,
                and are repeated, as runners do
    hostile     each hostile image is decoded in a separate process and measured
    tables, archives
                a sound table (CSV, JSON Lines, both gzipped, COCO, Create ML, Pascal VOC, YOLO,
                Parquet, WebDataset) or archive (zip, tar) is changed: bits and bytes, hostile
                texts, numbers in headers. Read with 2 GiB of addresses and 20 s, it must give rows
                and rejects, or an error that names the file
    hurting-tables, hurting-archives
                each table or archive that is made to hurt, such as 58 kB of .jsonl.gz that hold a
                line of 60 MB, is read in a separate process and measured
    hurting-masks
                masks of boxes that are made to hurt, such as 8,000 of 8,000x8,000 pixels, or a
                million run lengths, are converted, verified, read, shown and exported by commands
                that are measured
    large       sound images of up to 100 megapixels, each converted with options drawn at random
                in a process of its own
    unwritten   damaged images are decoded twice, while malloc fills memory with different bytes,
                and must give the same pixels

Kinds that disturb the command take --engine: threads, processes, prism, or gcs, which is threads
with input and output on a simulated Cloud Storage, `tests.fake_gcs`. Only gcs has quota and
permission, and only the others have mount and disk.

Trial N has the seed SEED + N, so that one that failed can be run alone. Prism is built by Go, or
comes from the cache of `tests.portable_runners`. Full disks need the right to mount.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import finalize, hostile, large, masks, mutations, outside, rivals, unwritten
from tests.faults.outcome import Outcome
from tests.faults.places import write_photos
from tests.faults.trials import KINDS, Scene, run_trial

PARTS = {  # in this process
    "finalize": finalize.trials,
    "mutations": mutations.trials,
    "hostile": hostile.trials,
    "large": large.trials,
    "unwritten": unwritten.trials,
    "rivals": rivals.trials,
    "tables": outside.changed_tables,
    "archives": outside.changed_archives,
    "hurting-tables": outside.hurting_tables,
    "hurting-archives": outside.hurting_archives,
    "hurting-masks": masks.trials,
}
Row = tuple[str, str]  # engine, kind


def main() -> int:
    arguments = make_parser().parse_args()
    rows: dict[Row, Outcome] = {}
    with (
        tempfile.TemporaryDirectory(prefix="beam_tfr-faults-") as folder,
        contextlib.ExitStack() as stack,
    ):
        trial = trials_of(arguments.engine, arguments.kind, Path(folder), stack)
        with contextlib.suppress(KeyboardInterrupt):  # shows what there is
            run(trial, arguments.trials, arguments.seed, rows)
    print(table(rows))
    if arguments.json:
        print(
            json.dumps([{"engine": row[0], "kind": row[1], **vars(of)} for row, of in rows.items()])
        )
    return 1 if any(of.problems for of in rows.values()) else 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", nargs="+", choices=[*KINDS], default=[*KINDS])
    kinds = dict.fromkeys(kind for of in KINDS.values() for kind in of)
    parser.add_argument("--kind", nargs="+", choices=[*kinds, *PARTS], default=[*kinds])
    parser.add_argument("--json", action="store_true", help="end with a line of JSON")
    return parser


def trials_of(
    engines: list[str], kinds: list[str], folder: Path, stack: contextlib.ExitStack
) -> Callable[[int], tuple[Row, Outcome]]:
    """A function that runs the trial of a seed, each time another engine and kind in turn."""
    photos = write_photos(folder / "photos")
    scenes: dict[str, Scene] = {}
    parts = {kind: make(folder / kind) for kind, make in PARTS.items() if kind in kinds}
    rows = [("", kind) for kind in parts]
    rows += [(engine, kind) for kind in kinds for engine in engines if kind in KINDS[engine]]

    def trial(seed: int) -> tuple[Row, Outcome]:
        engine, kind = row = rows[seed % len(rows)]
        if not engine:
            return row, parts[kind](seed)
        if engine not in scenes:
            scenes[engine] = Scene(engine, photos)
            stack.callback(scenes[engine].close)
        return row, run_trial(scenes[engine], kind, seed)

    return trial


def run(
    trial: Callable[[int], tuple[Row, Outcome]], trials: int, seed: int, rows: dict[Row, Outcome]
) -> None:
    """Runs all trials, and tells how far it is."""
    started = told = time.monotonic()
    for number in range(trials):
        row, outcome = trial(seed + number)
        rows.setdefault(row, Outcome(trials=0)).add(outcome)
        if outcome.problems:
            engine = f"--engine {row[0]} " if row[0] else ""
            print(
                f"\n{row}: python -m tests.faults --trials 1 --seed {seed + number} "
                f"{engine}--kind {row[1]}"
            )
            print(*outcome.problems, sep="\n", flush=True)
        now = time.monotonic()
        if now - told > 10 or number == trials - 1:
            told, took = now, now - started
            left = took / (number + 1) * (trials - number - 1)
            faults, bad = (
                sum(of.faults for of in rows.values()),
                sum(of.failed for of in rows.values()),
            )
            print(
                f"{number + 1} of {trials} trials, {faults} faults, {bad} failed, "
                f"{60 * (number + 1) / took:.1f} a "
                f"minute, {left / 60:.0f} minutes left",
                file=sys.stderr,
                flush=True,
            )


def table(rows: dict[Row, Outcome]) -> str:
    """What came of all trials, a line for each engine and kind."""
    columns = ("trials", "faults", "lost", "duplicated", "undetected", "failed")
    lines = [
        f"{'engine':10} {'kind':10} " + " ".join(f"{name:>10}" for name in (*columns, "longest"))
    ]
    for (engine, kind), of in sorted(rows.items()):
        counts = " ".join(f"{getattr(of, name):10,}" for name in columns)
        lines.append(f"{engine:10} {kind:10} {counts} {of.longest_s:8.1f} s")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
