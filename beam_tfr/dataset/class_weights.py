"""Computes class weights from the counts in the manifest."""

import math
import os
from fractions import Fraction

from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.reader_arguments import check_folder
from beam_tfr.dataset.splits import choose_splits
from beam_tfr.options.kinds import is_number
from beam_tfr.schema.arguments import public
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.untrusted import quote


@public
def class_weights(
    path: str | os.PathLike[str], split: str, *, cap: float | None = None
) -> dict[int, float]:
    """Returns class weights for Keras' `fit(class_weight=…)`; rare classes weigh more.

    The mean weight of an example is 1, so the learning rate needs no adjustment.

    For 90 cats and 10 dogs, the weights are 0.556 and 5; with cap=2, they are 0.889 and 2.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: the name of a split; "train+validation" for several splits, "all" for all splits,
            "all-fold4" for all splits except fold4.
        cap: the largest weight allowed, at least 1; the weight that is removed from rare classes
            goes to the other classes.

    Returns:
        Label -> weight; the weight of a class without examples is 0.

    Raises:
        UsageError: the split does not exist, `cap` is too small, or an example has no class or
            several classes.
        DataError: the folder holds no complete dataset.
    """
    dataset = read_manifest(check_folder(path))
    _check_single_label(dataset)
    _check_cap(cap)
    counts = dict.fromkeys(dataset.class_names, 0)
    for name in choose_splits(dataset, split, dataset.split_names):
        for class_name, images in dataset.splits[name].class_counts.items():
            counts[class_name] += images
    weights = _weigh([*counts.values()], cap)
    return dict(enumerate(weights))


def _check_cap(cap: object) -> None:
    """Checks the largest weight, if one is specified.

    Raises:
        UsageError: `cap` is not a number, or less than 1.
    """
    if cap is None or (is_number(cap) and 1 <= float(cap) < math.inf):  # type: ignore[arg-type]
        return
    raise UsageError("must be a number, 1 or more", option="cap", value=quote(cap))


def _check_single_label(dataset: Manifest) -> None:
    """Checks that each example has exactly one class.

    Raises:
        UsageError: an example has no class, or several classes.
    """
    label = dataset.feature_kinds.label
    if label is None:
        raise UsageError(f"{dataset.folder} has no classes, so there is nothing to weight")
    if label.is_list:
        raise UsageError(
            f"images in {dataset.folder} can have several classes, but Keras' class_weight allows "
            "only one: weight the loss of each class instead, using `class_counts` in "
            "`reader.open(path).splits`"
        )


def _weigh(counts: list[int], cap: float | None) -> list[float]:
    """Returns weights that give all classes the same total weight, unless limited by `cap`.

    Arithmetic is exact until the last division, so the result is the same on every machine.
    """
    present = sorted(count for count in counts if count)
    rest = Fraction(sum(present))  # of the weight of all examples
    classes = len(present)
    limit = None if cap is None else Fraction(cap)
    for count in present:
        if limit is None or rest / classes <= limit * count:
            break
        rest -= limit * count
        classes -= 1
    weights = []
    for count in counts:
        weight = rest / classes / count if count and classes else Fraction(0)
        if limit is not None and (weight > limit or (count and not classes)):
            weight = limit
        weights.append(float(weight))
    return weights
