"""Takes images down. Their records are gone from every file of the dataset, and they do not come
back with the next update.

examples:
  beam-tfr remove /data/photos --keys takedown.txt
      takedown.txt has a key per line, as contents and rejects.jsonl show them: cat/1.jpg
  beam-tfr remove /data/photos --sha256 hashes.txt
  beam-tfr remove /data/photos --where class=cat
  beam-tfr verify /data/photos --absent takedown.txt
      proves that they are gone

Needs no input. Hashes of keys and files stay in removed.txt: later conversions and updates into the
folder leave them out. Source files are not touched.
"""

import argparse
import re
from collections.abc import Sequence

from beam_tfr import storage
from beam_tfr.commands.calls import add_dataset, add_where, launching, print_result
from beam_tfr.console.terminal import counted
from beam_tfr.inputs.patterns import read_lines
from beam_tfr.schema.dataset import REMOVED_FILE
from beam_tfr.schema.errors import UsageError

HELP = "take images down: from records, contents, rejects and all else"
SHA256 = re.compile(r"[0-9a-fA-F]{64}(\s|$)")
ON_GCS = """note:    versions and soft-deleted objects may still hold what was removed; these commands list them:
         gcloud storage ls --all-versions '{0}/**'
         gcloud storage ls --soft-deleted '{0}/**'"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_dataset(parser)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--keys", metavar="FILE", help="file with a key per line")
    chosen.add_argument(
        "--sha256", metavar="FILE", help="file with the SHA-256 of a source file per line, in hex"
    )
    add_where(chosen, "column of the contents and its value: class=cat")


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Removes images; `others` are Beam's flags."""
    with launching(parsed, others) as (_, reports):
        from beam_tfr import launch
        from beam_tfr.dataset.conditions import parse_conditions
        from beam_tfr.output.removed import Selection

        keys = [*filter(None, read_lines(parsed.keys, option="keys", needs="a key per line"))]
        wanted = Selection(keys, _hashes(parsed.sha256), parse_conditions(parsed.where))
        done = launch.remove(parsed.folder, wanted, others, **reports)
    number = done.changed.get("removed", 0)
    lines = [f"removed: {counted(number, 'record')}; {REMOVED_FILE} keeps them out"]
    lines.append(f"dataset: {done.folder}   digest {done.digest[:16]}")
    lines += [ON_GCS.format(done.folder.rstrip("/"))] * storage.is_gcs(done.folder)
    print_result(
        {"folder": done.folder, "dataset_digest": done.digest, "removed": number}
        if parsed.json
        else lines
    )
    return 0


def _hashes(path: str | None) -> list[str]:
    """The hashes in a file, also as `sha256sum` writes it."""
    lines = [*filter(None, read_lines(path, option="sha256", needs="a SHA-256 per line"))]
    for line in lines:
        if not SHA256.match(line):
            message = f"{line!a:.100} is no SHA-256: each line begins with one, of 64 hex digits"
            raise UsageError(message, option="sha256", value=path)
    return [line.split()[0] for line in lines]
