"""Converting from zip and tar archives, beside converting the folder they were made from.

On the local disk and, with a latency, from a server in another process. Then what listing and
reading alone take, the best of all turns; at the end, listing large archives.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.measuring import Table, served
from benchmarks.turns import add_photos, pattern_of, photos, table, take_turns

READ = """
import sys, time
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.patterns import mark_folders, order_patterns
from beam_tfr.inputs.read_ahead import ReadAhead
started = time.process_time()
entries = list(match_files(order_patterns(mark_folders([sys.argv[1]]))))
listed = time.process_time()
for content in ReadAhead().read(entries):
    assert isinstance(content, bytes), content
print((listed - started) / len(entries) * 1e6, (time.process_time() - listed) / len(entries) * 1e6)
"""
WRITE = """
import sys, tarfile, zipfile
path, members = sys.argv[1], int(sys.argv[2])
names = (f"{number % 1000:04}/n{number % 1000:08}_{number:07}.jpg" for number in range(members))
if path.endswith("zip"):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
else:
    with tarfile.open(path, "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
            archive.members.clear()
"""
LIST = """
import sys
from beam_tfr.inputs.listing import match_files
print(sum(1 for _ in match_files([(sys.argv[1], ())])))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_photos(parser)
    parser.add_argument(
        "--latency_ms", type=float, default=50, help="of each request to gs:// (default: 50)"
    )
    parser.add_argument(
        "--members", type=int, default=1_000_000, help="of the large archives (default: a million)"
    )


def pack(paths: list[pathlib.Path], folder: pathlib.Path) -> None:
    """Writes the photos as archives and as files.

    That is stored.zip, deflated.zip, classes/LABEL.tar, and files below files/.
    """
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(folder / f"{name}.zip", "w", method) as archive:
            for number, path in enumerate(paths):
                archive.write(path, f"{path.parent.name}/{number}.jpg")
    (folder / "classes").mkdir()
    for number, path in enumerate(paths):
        file = folder / "files" / path.parent.name / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(path.read_bytes())
    for label in (folder / "files").iterdir():
        with tarfile.open(folder / "classes" / f"{label.name}.tar", "w") as tar:
            tar.add(label, ".")


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    with photos(arguments) as paths, contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-"))
        pack(paths, pathlib.Path(folder))
        program = (
            "-m",
            "tests.fake_gcs",
            "--photos",
            f"photos={folder}",
            "--latency_ms",
            arguments.latency_ms,
        )
        address, _ = stack.enter_context(served(*program))
        inputs = {
            "folder": "files",
            "stored zip": "stored.zip",
            "deflated zip": "deflated.zip",
            "tars": "classes/*.tar",
        }

        server = ["env", f"STORAGE_EMULATOR_HOST={address}"]
        found = {name: ([], f"{folder}/{of}") for name, of in inputs.items()}
        remote = [*inputs][: 1 if arguments.quick else None]
        found |= {f"gs:// {name}": (server, f"gs://photos/{inputs[name]}") for name in remote}

        def commands(_: str, output: str) -> dict[str, list[str]]:
            names = {name: f"{output}/{number}" for number, name in enumerate(found)}
            return {
                name: [*found[name][0], *measuring.convert(found[name][1], names[name])]
                for name in found
            }

        yield table(
            "archives", len(paths), take_turns(commands, pattern_of(paths), arguments.pairs)
        )
        rows = []
        for name, (before, pattern) in found.items():
            command = [*before, *measuring.python("-c", READ, pattern)]
            costs = [measuring.measure(command).output.split() for _ in range(arguments.pairs)]
            rows.append([name, *(min(map(float, times)) for times in zip(*costs, strict=True))])
        columns = {"": "", "listing, CPU µs an image": ",.0f", "reading, CPU µs an image": ",.0f"}
        yield Table("listing and reading alone", columns, rows)
        yield list_large(pathlib.Path(folder), 1000 if arguments.quick else arguments.members)


def list_large(folder: pathlib.Path, members: int) -> Table:
    """What listing archives of many small images takes."""
    rows = []
    for form in ("zip", "tar"):
        path = folder / f"large.{form}"
        measuring.measure(
            measuring.python("-c", WRITE, path, members)
        )  # not here: a process inherits its parent's peak
        cost = measuring.measure(measuring.python("-c", LIST, path))
        rows.append([form, cost.wall_s, cost.cpu_s, cost.peak_bytes / 1e6])
    columns = {"": "", "s": ",.1f", "CPU s": ",.1f", "peak MB": ",.0f"}
    return Table(f"listing an archive: {members:,} images", columns, rows)
