"""Contests: commands that do the same with a folder of photos, in turns.

Each is a process of its own.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measuring import ROOT, Cost, Table, measure, median_of, ratio

SAMPLE = ROOT / "beam_tfr" / "sample"
QUICK_PHOTOS = 20
Commands = Callable[
    [str, str], dict[str, list[str]]
]  # (pattern of the photos, an empty folder) -> name -> command
COLUMNS = {
    "": "",
    "images/s": ",.0f",
    "time, {} = 1": ".2f",
    "CPU ms an image": ".2f",
    "CPU, {} = 1": ".2f",
    "peak MB": ",.0f",
}


def parse_size(text: str) -> tuple[int, int]:
    """HEIGHTxWIDTH, or one number for both."""
    height, _, width = text.partition("x")
    return int(height), int(width or height)


def add_photos(parser: argparse.ArgumentParser) -> None:
    """Adds the options of benchmarks that take photos."""
    add = parser.add_argument
    add(
        "photos",
        type=pathlib.Path,
        nargs="?",
        default=SAMPLE,
        help="folder of JPEGs (default: the bundled sample)",
    )
    add("--times", type=int, default=1, help="take them so many times, through links (default: 1)")
    add("--limit", type=int, metavar="N", help="take the first N only")
    add(
        "--enlarge", type=parse_size, metavar="HxW", help="resize them first, in a temporary folder"
    )
    add("--quality", type=int, default=90, help="of enlarged JPEGs (default: 90)")
    add("--pairs", type=int, default=5, help="turns (default: 5)")


def add_contest(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a contest."""
    add_photos(parser)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="only these; ratios are to the first"
    )
    parser.add_argument(
        "--net",
        action="store_true",
        help="subtract what a run with one photo takes in the same turn",
    )


@contextlib.contextmanager
def photos(arguments: argparse.Namespace, *, form: str = "jpg") -> Iterator[list[pathlib.Path]]:
    """A temporary folder of links to the photos, in their folders: NUMBER/SPLIT/CLASS/NAME.

    Args:
        arguments: those of `add_photos`.
        form: another one than "jpg" makes files of that format first.

    Raises:
        SystemExit: there are no photos.
    """
    originals = sorted(arguments.photos.resolve().rglob("*.jpg"))
    if not originals:
        raise SystemExit(f"{arguments.photos}: there is no **/*.jpg in it")
    limit = arguments.limit or len(originals) * arguments.times
    if arguments.quick:
        limit = min(limit, QUICK_PHOTOS)
        arguments.pairs = 1
    with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as temporary:
        names = [
            path.relative_to(arguments.photos.resolve()).with_suffix(f".{form}")
            for path in originals[:limit]
        ]
        files = originals[:limit]
        if arguments.enlarge or form != "jpg":
            files = [pathlib.Path(temporary) / "made" / name for name in names]
            for source, file in zip(originals, files, strict=False):
                remake(source, file, arguments.enlarge, arguments.quality)
        links = []
        for number in range(min(limit, len(files) * arguments.times)):
            repeat, which = divmod(number, len(files))
            link = pathlib.Path(temporary) / "photos" / str(repeat) / names[which]
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(files[which])
            files[which].read_bytes()  # from the disk's cache from now on
            links.append(link)
        yield links


def remake(
    source: pathlib.Path, file: pathlib.Path, size: tuple[int, int] | None, quality: int
) -> None:
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as image:
        image = image.convert("RGB")
    image = image.resize(size[::-1], Image.Resampling.LANCZOS) if size else image
    image.save(file, quality=quality)


def pattern_of(paths: list[pathlib.Path]) -> str:
    """Matches what `photos` gave."""
    folder = next(
        parent
        for parent in paths[0].parents
        if parent.name == "photos" and "-benchmark-" in parent.parts[-2]
    )
    return f"{folder}/**/*{paths[0].suffix}"


def take_turns(
    commands: Commands, pattern: str, pairs: int, *, net_of: str = ""
) -> dict[str, list[Cost]]:
    """Name -> what its runs cost, in the order of the turns.

    Args:
        commands: run in their order, so that one may use what another wrote.
        pattern: of the photos.
        pairs: number of turns.
        net_of: pattern of one photo; what the run with it takes is subtracted.
    """
    costs: dict[str, list[Cost]] = collections.defaultdict(list)
    for _ in range(pairs):
        with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder:
            os.mkdir(f"{folder}/one")
            alone = commands(net_of, f"{folder}/one") if net_of else {}
            for name, command in commands(pattern, folder).items():
                start = measure(alone[name]) if net_of else Cost(0, 0)
                costs[name].append(measure(command).without(start))
    return costs


def compete(
    arguments: argparse.Namespace, commands: Commands, *, form: str = "jpg"
) -> tuple[int, dict[str, list[Cost]]]:
    """The number of photos, and what each contestant's runs cost.

    Raises:
        SystemExit: `--only` names something else, or a command fails.
    """

    def chosen(pattern: str, folder: str) -> dict[str, list[str]]:
        all_of_them = commands(pattern, folder)
        unknown = set(arguments.only or ()) - all_of_them.keys()
        if unknown:
            raise SystemExit(
                f"--only: {', '.join(sorted(unknown))}: must be of {', '.join(all_of_them)}"
            )
        return {name: all_of_them[name] for name in arguments.only or all_of_them}

    with photos(arguments, form=form) as paths:
        net_of = f"{paths[0].parents[1]}/**/{paths[0].name}" if arguments.net else ""
        return len(paths), take_turns(chosen, pattern_of(paths), arguments.pairs, net_of=net_of)


def table(
    what: str, images: int, costs: dict[str, list[Cost]], *, cpu_of: str = "", net: bool = False
) -> Table:
    """Medians, and the medians of the ratios to the first contestant and, of CPU, to `cpu_of`."""
    first = next(iter(costs))
    cpu_of = cpu_of if cpu_of in costs else first
    count = images - net
    rows: list[list[Any]] = []
    for name, runs in costs.items():
        rows.append(
            [
                name,
                median_of(runs, lambda cost: count / cost.wall_s),
                ratio(runs, costs[first], lambda cost: cost.wall_s),
                median_of(runs, lambda cost: cost.cpu_s / count * 1e3),
                ratio(runs, costs[cpu_of], lambda cost: cost.cpu_s),
                median_of(runs, lambda cost: cost.peak_bytes / 1e6) or None,
            ]
        )
    headings = [
        heading.format(name)
        for heading, name in zip(COLUMNS, ("", "", first, "", cpu_of, ""), strict=True)
    ]
    title = f"{what}: {images:,} photos, {len(costs[first])} turns"
    if net:
        title += ", without what one photo takes"
    return Table(title, dict(zip(headings, COLUMNS.values(), strict=True)), rows)


def run_contest(
    what: str, arguments: argparse.Namespace, commands: Commands, *, form: str = "jpg"
) -> Iterator[Table]:
    """A whole benchmark that is nothing but a contest."""
    images, costs = compete(arguments, commands, form=form)
    yield table(what, images, costs, net=arguments.net)
