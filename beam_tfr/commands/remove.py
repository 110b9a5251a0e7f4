"""Takes images down.

Removes the images' records from every file of the dataset, and keeps the images out of later
updates.

examples:
  beam-tfr remove /data/photos --keys takedown.txt
      takedown.txt contains a key per line, as in the contents and rejects.jsonl: cat/1.jpg
  jq -c .key rejects.jsonl | beam-tfr remove /data/photos --keys -
  beam-tfr remove /data/photos --sha256 hashes.txt
  beam-tfr remove /data/photos --where class=cat
  beam-tfr remove /data/photos --keys all.txt --allow_missing
      without --allow_missing, a key that is not in the dataset is an error: nothing is removed
  beam-tfr verify /data/photos --absent takedown.txt
      proves that the images are gone

Needs no input. Hashes of keys and files stay in removed.txt, so later conversions and updates into
the folder leave the images out. Source files are not touched.
"""

import argparse
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.commands.calls import add_dataset, add_where, print_json, print_lines, show_run
from beam_tfr.console.terminal import counted
from beam_tfr.inputs.key_lists import read_hashes, read_keys
from beam_tfr.schema.dataset import REMOVED_FILE
from beam_tfr.schema.spelling import quote_word

HELP = "take images down, and keep them out of later updates"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument(
        "--keys",
        metavar="FILE",
        help="file with a key per line, or JSON Lines of keys or of objects with a key, as in "
        "rejects.jsonl; - for standard input",
    )
    chosen.add_argument(
        "--sha256",
        metavar="FILE",
        help="file with one SHA-256 of a source file per line, in hex; - for standard input",
    )
    add_where(chosen, "column of the contents and its value: class=cat")
    parser.add_argument(
        "--allow_missing",
        action="store_true",
        help="accept keys and hashes that are not in the dataset, and keep their images out of "
        "later updates too",
    )


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Removes images; `others` are Beam's flags."""
    with show_run(parsed, others) as display:
        from beam_tfr import launch
        from beam_tfr.dataset.conditions import parse_conditions
        from beam_tfr.output.removed import ImageSelection

        selection = ImageSelection(where=parse_conditions(parsed.where))
        if parsed.keys is not None:
            listed = read_keys(parsed.keys, option="keys", needs="a key per line")
            selection = ImageSelection(listed.keys, keys_are_lines=listed.are_lines)
        if parsed.sha256 is not None:
            selection = ImageSelection(sources=read_hashes(parsed.sha256, option="sha256"))
        result = launch.remove(
            parsed.folder,
            selection,
            others,
            allow_missing=parsed.allow_missing,
            progress=display,
            say=display.say,
        )
    removed = result.changed.get("removed", 0)
    if parsed.json:
        print_json(
            {
                "folder": result.folder,
                "dataset_digest": result.digest,
                "removed": removed,
                "new_ids": result.new_ids,
                "copies_that_stay": [*result.copies_that_stay],
            }
        )
        return 0
    lines = [
        f"removed: {counted(removed, 'record')}; {REMOVED_FILE} keeps them out",
        f"dataset: {result.folder}   digest {result.digest[:16]}",
    ]
    lines += _describe_copies(result.copies_that_stay)
    if result.new_ids:
        lines.append(f"note:    {result.describe_new_ids()}")
    if result.lost_splits:
        lines.append(f"note:    {result.lost_splits}")
    if storage.is_gcs(result.folder):
        files = quote_word(f"{result.folder.rstrip('/')}/**", "DIR/**")
        lines += [
            "note:    versions and soft-deleted objects may still hold what was removed; these "
            "commands list them:",
            f"         gcloud storage ls --all-versions {files}",
            f"         gcloud storage ls --soft-deleted {files}",
        ]
    print_lines(lines)
    return 0


def _describe_copies(keys: Sequence[str]) -> Iterator[str]:
    """Yields lines about remaining images that are copies of removed images."""
    if keys:
        yield (
            "note:    copies of removed images are still in the dataset "
            f"({counted(len(keys), 'image')}); the same command with their keys takes them down "
            "too:"
        )
    for key in keys:
        yield f"  {key}"
