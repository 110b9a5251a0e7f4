"""Writes rejects.jsonl, the rejects of a dataset sorted by key, and checks their number."""

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
from beam_tfr.dataset.reject_lines import read_rejects
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.features.mask_colors import describe_all_colors
from beam_tfr.output import sidecars
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import DUPLICATE, Reject
from beam_tfr.schema.plan import Counts, Plan, sum_counts
from beam_tfr.schema.spelling import spell_option

MOST_SHOWN = 10  # rejects with the leading reason
MOST_SHOWN_OF_OTHERS = 3  # rejects with each other reason
READERS = 16  # threads that fetch reject lines, which takes longer on gs:// than writing them
# Reasons for rejects that the user asked for, with --no_boxes, `remove` or --duplicates.
_ASKED_FOR = ("without-boxes", "taken-down", DUPLICATE)
# Members of `ADJUSTMENTS` for images that lost boxes.
_DROPPED_BOXES = {"boxes-dropped", "bad-boxes-dropped"}
# The limit without --max_rejects.
_USUAL_SHARE = Fraction(1, 100)
_USUAL_NUMBER = Fraction(10)
_LARGEST_SHARE = Fraction(1, 10)
_DROP_BOXES = (
    "use `bad_boxes=drop` to leave out only boxes that have no area or are outside their image"
)
_MOST_LOOKED_AT = 100_000  # rejects read to find colors of masks
_RUN_BYTES = 16 << 20  # 16 MiB of lines, sorted in memory


def check_rejects(
    plan: Plan,
    splits: Mapping[str, Counts],
    max_rejects: int | float | None,
    *,
    allow_empty: Collection[str],
) -> None:
    """Checks that not too many images were rejected, and that no split or class is lost.

    Args:
        plan: the plan of the run.
        splits: split -> totals of its shards.
        max_rejects: see `count_allowed`.
        allow_empty: splits and classes whose images may all be rejected.

    Raises:
        DataError: there are too many rejects, or a split or class has no record left.
    """
    problem = describe_excess(sum_counts(splits.values()).rejected, max_rejects, plan)
    if problem:
        raise DataError(problem)
    for split, counts in splits.items():
        if split not in (NO_SPLIT, *allow_empty):
            _check_split(plan, split, counts)
            _check_classes(plan, split, counts, allow_empty)


def _check_split(plan: Plan, split: str, counts: Counts) -> None:
    if not counts.num_examples:
        reasons = _name_reasons(counts.rejected)
        raise DataError(
            f"split {split} would be empty: all of its {plan.noun} were rejected ({reasons}). "
            f"Fix one, leave them out of {plan.input_option}, or use "
            f"{spell_option('allow_empty', split)}"
        )


def _check_classes(plan: Plan, split: str, counts: Counts, allow_empty: Collection[str]) -> None:
    for label_id, label in enumerate(plan.classes):
        planned = plan.splits[split].class_counts.get(label, 0)
        is_lost = planned > 0 and not counts.class_counts.get(label_id)
        if is_lost and label not in allow_empty:
            raise _lost_class(plan, split, label, counts)


def _lost_class(plan: Plan, split: str, label: str, counts: Counts) -> DataError:
    """Creates the exception for a class that has no record left in a split."""
    planned = plan.splits[split].class_counts[label]
    if FeaturesDict.from_options(plan.options).boxes:
        cause, cures = _explain_lost_boxes(plan, planned, counts)
    else:
        cause = f"all of its {plan.noun} in this split were rejected ({planned:,})"
        cures = ["fix one"]
    cures.append(f"leave the class out of {plan.input_option} or `classes=`")
    advice = ", ".join(cures)
    return DataError(
        f"class {label} would be lost from split {split}: {cause}. "
        f"{advice[0].upper()}{advice[1:]}, or use {spell_option('allow_empty', label)}"
    )


def _explain_lost_boxes(plan: Plan, planned: int, counts: Counts) -> tuple[str, list[str]]:
    """Explains why all boxes of a class may be missing from a split, and how to keep such boxes.

    Args:
        planned: number of these boxes in the plan.
        counts: totals of the shards of the split.
    """
    causes = list[str]()
    cures = list[str]()
    if counts.adjusted.keys() & _DROPPED_BOXES:
        causes.append("were dropped")
    if counts.rejected:
        causes.append(f"are in rejected {plan.noun} ({_name_reasons(counts.rejected)})")
        cures.append(f"fix these {plan.noun}")
    if _may_hold_bad_boxes(plan, counts.rejected):
        cures.append(_DROP_BOXES)
    if "boxes-dropped" in counts.adjusted:
        cures.append("lower `min_visible=`")
        if plan.options.get("resize") == "crop":
            cures.append("use `resize=pad`")
    return f"all of its boxes in this split ({planned:,}) {' or '.join(causes)}", cures


def _may_hold_bad_boxes(plan: Plan, rejected: Mapping[str, float]) -> bool:
    """Whether images may be rejected only because of bad boxes, given the counts by reason."""
    if "bad-value" not in rejected or plan.options.get("bad_boxes") == "drop":
        return False
    return FeaturesDict.from_options(plan.options).boxes is not None


def _name_reasons(rejected: Mapping[str, float]) -> str:
    """Lists reasons with their numbers of rejects, the most frequent reason first."""
    by_number = sorted(rejected, key=lambda reason: (-rejected[reason], reason))
    return ", ".join(f"{reason} {rejected[reason]:,.0f}" for reason in by_number)


def count_allowed(max_rejects: int | float | None, matched: int) -> int:
    """Returns how many images may be rejected.

    Args:
        max_rejects: a fraction (float) or number (int); None for the greater of 1% and 10, but at
            most 10%, so that one bad image in five is noticed.
        matched: number of all images.
    """
    if max_rejects is None:
        usual = max(_USUAL_SHARE * matched, _USUAL_NUMBER)
        return math.floor(min(usual, _LARGEST_SHARE * matched))
    if isinstance(max_rejects, float):
        share = Fraction(str(max_rejects))  # exactly the decimal that the user wrote
        return math.floor(share * matched)
    return max_rejects


def describe_excess(
    rejected: Mapping[str, float], max_rejects: int | float | None, plan: Plan
) -> str:
    """Returns a message about too many rejects, with possible fixes, or "" if there are few.

    Args:
        rejected: reason -> number of rejects, perhaps estimated.
        max_rejects: see `count_allowed`.
        plan: the plan.
    """
    allowed = count_allowed(max_rejects, plan.matched)
    if count_towards_limit(rejected) <= allowed:
        return ""
    reasons = _name_reasons(rejected)
    number = sum(rejected.values())
    limit = f"{spell_option('max_rejects', max_rejects)} allows {allowed:,}"
    if max_rejects is None:
        limit = (
            f"and {allowed:,} of these {plan.matched:,} are allowed: 1% of the {plan.noun}, at "
            "least 10, but at most 10% of them"
        )
    cure = ""
    if _may_hold_bad_boxes(plan, rejected):
        cure = f"{_DROP_BOXES}, "
    if "not-found" in rejected and "layout" not in plan.options:
        cure += "set `image_root=` if paths are relative to another folder, "
    return (
        f"{number:,.0f} of {plan.matched:,} {plan.noun} were rejected ({reasons}), {limit}. "
        f"Nothing is published. Fix them, {cure}leave them out of {plan.input_option}, or run "
        "again with a larger `max_rejects=`: finished shards are kept"
    )


def count_towards_limit(rejected: Mapping[str, float]) -> float:
    """Returns how many rejects count for `max_rejects`: those that the user did not request.

    Args:
        rejected: reason -> number of rejects.
    """
    return sum(number for reason, number in rejected.items() if reason not in _ASKED_FOR)


def write_rejects(path: str, folder: str, shards: Mapping[str, str]) -> str:
    """Writes the reject lines of finished shards to one file, sorted by key; returns its SHA-256.

    Args:
        path: path of the file.
        folder: folder of the dataset.
        shards: shard name -> `ShardInfo.rejects_sha256`, or an empty string for any rejects.

    Raises:
        RunError: a sidecar is missing, damaged or from another run.
    """
    digest = hashlib.sha256()
    with storage.create(path, scratch=storage.work_path(folder, "")) as file:
        for line in sort_by_key(_read_lines(folder, shards)):
            digest.update(line)
            file.write(line)
        file.commit()
    return digest.hexdigest()


def _read_lines(folder: str, shards: Mapping[str, str]) -> Iterator[bytes]:
    """Yields the reject lines of shards; at most `READERS` shards are in memory at a time."""

    def read_shard(name: str) -> list[bytes]:
        return sidecars.read_rejects(folder, name, shards[name])

    names = [*shards]
    with ThreadPoolExecutor(READERS) as pool:
        for begin in range(0, len(names), READERS):
            batch = names[begin : begin + READERS]
            for lines in pool.map(read_shard, batch):
                yield from lines


def sort_by_key(lines: Iterable[bytes], run_bytes: int = _RUN_BYTES) -> Iterator[bytes]:
    """Sorts reject lines by key.

    Stores sorted parts on the disk, so memory does not grow with the number of lines.
    """
    with contextlib.ExitStack() as stack:
        runs = list[Iterable[bytes]]()
        run = list[bytes]()
        size = 0
        for line in lines:
            run.append(line)
            size += len(line)
            if size >= run_bytes:
                file = stack.enter_context(tempfile.TemporaryFile())
                run.sort(key=_sort_key)
                file.writelines(run)
                file.seek(0)
                runs.append(file)
                run.clear()
                size = 0
        yield from heapq.merge(*runs, sorted(run, key=_sort_key), key=_sort_key)


def _sort_key(line: bytes) -> tuple[str, bytes]:
    return json.loads(line)["key"], line


def describe_rejects(path: str, counts: Mapping[str, int]) -> Iterator[str]:
    """Yields lines about the rejects in a file: for each reason, their number and examples.

    Args:
        path: path of the file.
        counts: reason -> number of rejects.
    """
    if not counts:
        return
    room = {reason: min(number, MOST_SHOWN_OF_OTHERS) for reason, number in counts.items()}
    leading = _find_leading(counts)
    room[leading] = min(counts[leading], MOST_SHOWN)
    examples = take_examples(read_rejects(path), room)
    for reason, number in counts.items():
        yield f"  {reason}: {number:,}"
        for reject in examples[reason]:
            yield f"    {reject.key}: {reject.detail}"
    if "bad-value" in counts:
        details = (reject.detail for reject in read_rejects(path))
        for text in describe_all_colors(itertools.islice(details, _MOST_LOOKED_AT)):
            yield f"  {text}"
    yield f"  all of them, with reasons: {path}"


def _find_leading(counts: Mapping[str, int]) -> str:
    """Returns the reason with the most rejects, preferring reasons that count for `max_rejects`."""
    return min(counts, key=lambda reason: (reason in _ASKED_FOR, -counts[reason], reason))


def take_examples(rejects: Iterable[Reject], numbers: Mapping[str, int]) -> dict[str, list[Reject]]:
    """Returns reason -> its first rejects; stops reading once there are enough for each reason."""
    room = dict(numbers)
    examples: dict[str, list[Reject]] = {reason: [] for reason in room}
    for reject in rejects:
        if room.get(reject.reason):
            room[reject.reason] -= 1
            examples[reject.reason].append(reject)
        if not any(room.values()):
            break
    return examples
