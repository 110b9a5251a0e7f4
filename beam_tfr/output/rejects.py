"""rejects.jsonl: all rejects of a dataset by key, and whether they are too many."""

import contextlib
import hashlib
import heapq
import itertools
import json
import math
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

from beam_tfr import storage
from beam_tfr.output import sidecars
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.features import has_boxes
from beam_tfr.schema.items import Reject
from beam_tfr.schema.plan import Counts, Plan, sum_counts

MOST_SHOWN = 10  # rejects of the leading reason
READERS = 16  # threads that fetch reject lines, which takes longer on gs:// than writing them
_RUN_BYTES = 16 << 20  # 16 MiB of lines, sorted in memory


def check_rejects(
    plan: Plan,
    splits: Mapping[str, Counts],
    max_rejects: int | float,
    *,
    allow_empty: Collection[str],
) -> None:
    """Checks that not too many images were rejected, nor a whole split or class.

    Args:
        plan: the plan of the run.
        splits: the sums over the shards of each.
        max_rejects: maximum share (float) or number (int) of rejects.
        allow_empty: splits and classes whose images may all be rejected.

    Raises:
        DataError: there are too many rejects, or a split or class has no record.
    """
    problem = describe_excess(sum_counts(splits.values()).rejected, max_rejects, plan)
    if problem:
        raise DataError(problem)
    for split, counts in splits.items():
        if split in (NO_SPLIT, *allow_empty):
            continue
        planned = plan.splits[split]
        if not counts.num_examples:
            text = f"split {split} would be empty: all of its {plan.noun} were rejected ({planned.matched:,})"
            raise DataError(
                f"{text}. Fix one, leave them out of {plan.input_option}, or give `allow_empty={split}`"
            )
        for label_id, label in enumerate(plan.labels or ()):
            if (
                planned.class_counts.get(label)
                and not counts.class_counts.get(label_id)
                and label not in allow_empty
            ):
                boxes = has_boxes(plan.options)
                cause = "boxes there were dropped" if boxes else f"{plan.noun} there were rejected"
                cure = "Lower `min_visible=`, use `resize=pad`" if boxes else "Fix one"
                text = f"class {label} would be lost from split {split}: all of its {cause}"
                cure += f", leave the class out of {plan.input_option} or `classes=`, or give `allow_empty={label}`"
                raise DataError(f"{text} ({planned.class_counts[label]:,}). {cure}")


def describe_excess(rejected: Mapping[str, float], max_rejects: int | float, plan: Plan) -> str:
    """The error of a conversion of which too many images are rejected; empty if they are not.

    Args:
        rejected: reason -> rejects, perhaps estimated.
        max_rejects: maximum share (float) or number (int) of rejects.
        plan: the plan.
    """
    if isinstance(max_rejects, float):
        allowed = math.floor(Fraction(str(max_rejects)) * plan.matched)
    else:
        allowed = max_rejects
    if num_counted(rejected) <= allowed:
        return ""
    led = sorted(rejected.items(), key=lambda pair: (-pair[1], pair[0]))
    reasons = ", ".join(f"{reason} {number:,.0f}" for reason, number in led)
    number = f"{sum(rejected.values()):,.0f} of {plan.matched:,} {plan.noun}"
    text = f"{number} were rejected ({reasons}), `max_rejects={max_rejects}` allows {allowed:,}: nothing is published"
    cure = f"leave them out of {plan.input_option}, or call again with a larger `max_rejects=`"
    return f"{text}. Fix them, {cure}: finished shards are kept"


def num_counted(rejected: Mapping[str, float]) -> float:
    """How many rejects count towards `max_rejects`, given those of each reason: all but those that
    were asked for."""
    return sum(number for reason, number in rejected.items() if reason != "without-boxes")


def write_rejects(path: str, folder: str, shards: Mapping[str, str]) -> str:
    """Writes the reject lines of some finished shards of a folder to one file, by key; returns its
    SHA-256.

    Args:
        path: path of the file.
        folder: folder of the dataset.
        shards: names of the shards -> `ShardInfo.rejects_sha256`; empty for any.

    Raises:
        RunError: a sidecar is missing, damaged or from another run.
    """
    digest = hashlib.sha256()
    with storage.create(path, scratch=storage.work_path(folder, "")) as file:
        for line in sort_by_key(_lines(folder, shards)):
            digest.update(line)
            file.write(line)
        file.commit()
    return digest.hexdigest()


def _lines(folder: str, shards: Mapping[str, str]) -> Iterator[bytes]:
    waiting = iter(shards.items())
    with ThreadPoolExecutor(READERS) as pool:
        while batch := [*itertools.islice(waiting, READERS)]:  # in memory at a time
            for lines in pool.map(lambda shard: sidecars.read_rejects(folder, *shard), batch):
                yield from lines


def sort_by_key(lines: Iterable[bytes], run_bytes: int = _RUN_BYTES) -> Iterator[bytes]:
    """Sorts reject lines by key, in runs that wait on the disk: memory does not grow with them."""
    with contextlib.ExitStack() as stack:
        runs = list[Iterable[bytes]]()
        run = list[bytes]()
        size = 0
        for line in lines:
            run.append(line)
            size += len(line)
            if size >= run_bytes:
                run.sort(key=_key)
                file = stack.enter_context(tempfile.TemporaryFile())
                file.writelines(run)
                file.seek(0)
                runs.append(file)
                run = []
                size = 0
        yield from heapq.merge(*runs, sorted(run, key=_key), key=_key)


def _key(line: bytes) -> tuple[str, bytes]:
    return json.loads(line)["key"], line


def read_rejects(path: str) -> Iterator[Reject]:
    """The rejects in a file."""
    with storage.open_binary(path) as file:
        yield from (Reject(**json.loads(line)) for line in file)


def describe_rejects(path: str, counts: Mapping[str, int]) -> Iterator[str]:
    """Yields lines about the rejects in a file: their numbers by reason, and the first ones of the
    leading reason.

    The leading reason is one that counts, if there is any.

    Args:
        path: path of the file.
        counts: reason -> rejects.
    """
    leading = min(
        counts,
        key=lambda reason: (not num_counted({reason: 1}), -counts[reason], reason),
        default="",
    )
    for reason, number in counts.items():
        yield f"  {reason}: {number:,}"
        if reason == leading:
            examples = (
                f"    {reject.key}: {reject.detail}"
                for reject in read_rejects(path)
                if reject.reason == leading
            )
            yield from itertools.islice(examples, MOST_SHOWN)
    if counts:
        yield f"  all of them, with reasons: {path}"
