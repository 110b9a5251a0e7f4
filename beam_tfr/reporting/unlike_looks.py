"""Finds images that look least like the others of their class, by their outlines and colors.

A small model guesses the class of each image from the others. It is often wrong, but images with a
wrong class are among those for which it is surest.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inspection.pictures import read_square
from beam_tfr.inspection.records import InspectedRecord
from beam_tfr.reporting.histograms import Floats, Rows

MOST_COMPARED = 1_000  # images
MOST_CLASSES = 20  # with more, there are too few images per class
_LEAST_OF_CLASS = 20  # images
_SIDE = 64  # pixels of the square to which images are scaled
_CELLS = 8  # rows and columns of cells in which features are measured
_DIRECTIONS = 8  # directions of outlines to tell apart
_SMOOTHNESS = 0.3  # of the model, relative to the mean likeness of an image to itself
_RECORDS_AT_A_TIME = 64


def find_unlike_looks(
    dataset: Manifest, records: Mapping[int, Sequence[int]]
) -> dict[int, list[int]]:
    """Sorts the images of each class by how much they look like the class, the least similar first.

    Returns an empty dictionary if there are too many classes, or too few images per class.

    Args:
        dataset: the dataset.
        records: class -> some of its images.

    Raises:
        DataError: a record is damaged, or the dataset was replaced.
    """
    large = {label: some for label, some in records.items() if len(some) >= _LEAST_OF_CLASS}
    if not 2 <= len(large) <= MOST_CLASSES:
        return {}
    labels = np.repeat([*large], [len(some) for some in large.values()])
    numbers = np.concatenate([*large.values()])
    features, is_known = _read_features(dataset, numbers)
    labels = labels[is_known]
    numbers = numbers[is_known]
    classes, columns = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        return {}
    guesses = _guess_classes(features, columns)
    rows = np.arange(len(columns))
    own = guesses[rows, columns]
    guesses[rows, columns] = -np.inf
    lead = guesses.max(axis=1) - own  # how much more an image looks like another class
    unlike = dict[int, list[int]]()
    for row in np.argsort(-lead, kind="stable"):
        unlike.setdefault(int(labels[row]), []).append(int(numbers[row]))
    return unlike


def _read_features(dataset: Manifest, numbers: Rows) -> tuple[Floats, NDArray[np.bool_]]:
    """Reads features of images [known, features], and which records have any: bool [records]."""
    lookup = RecordLookup.whole(dataset)
    features = list[Floats]()
    is_known = np.zeros(len(numbers), bool)
    order = np.argsort(numbers)
    for begin in range(0, len(order), _RECORDS_AT_A_TIME):
        places = order[begin : begin + _RECORDS_AT_A_TIME]
        some = numbers[places].tolist()
        for place, number, data in zip(places, some, lookup.read_records(some), strict=True):
            image = read_square(InspectedRecord(number, "", 0, data).values, _SIDE)
            if image is not None:
                features.append(_describe_both_ways(image.astype(np.float64)))
                is_known[place] = True
    in_order = order[is_known[order]]
    described = np.zeros((len(numbers), len(features[0]) if features else 0))
    described[in_order] = features
    return described[is_known], is_known


def _describe_both_ways(pixels: Floats) -> Floats:
    """Computes the features of an image, which equal those of its mirror image."""
    mirrored = pixels[:, ::-1]
    both: Floats = (_describe_image(pixels) + _describe_image(mirrored)) / 2
    return both


def _describe_image(pixels: Floats) -> Floats:
    """Computes outlines and colors of an image [side, side, 3], each with a length of about 1.

    Source of the histograms of directions: Dalal and Triggs, Histograms of Oriented Gradients for
    Human Detection, 2005.
    """
    down, right = np.gradient(pixels.mean(axis=2))
    strength = np.hypot(down, right)
    turn = np.arctan2(down, right) % np.pi / np.pi
    direction = np.minimum((turn * _DIRECTIONS).astype(np.int64), _DIRECTIONS - 1)
    step = _SIDE // _CELLS
    row, column = np.indices((_SIDE, _SIDE)) // step
    cell = (row * _CELLS + column) * _DIRECTIONS + direction
    sums = np.bincount(cell.ravel(), strength.ravel(), _CELLS * _CELLS * _DIRECTIONS)
    outlines = np.sqrt(sums)
    colors = pixels.reshape(_CELLS, step, _CELLS, step, 3).mean(axis=(1, 3)).ravel()
    colors -= colors.mean()
    return np.concatenate([_shorten(outlines), _shorten(colors)])


def _shorten(vector: Floats) -> Floats:
    shortened: Floats = vector / max(float(np.linalg.norm(vector)), 1e-6)
    return shortened


def _guess_classes(features: Floats, columns: Rows) -> Floats:
    """Returns how much each image looks like each class, by a model of all other images.

    The result is [images, classes]. The model is kernel ridge regression, for which leaving out an
    image needs no new fit: The Elements of Statistical Learning, 2009, equations 5.50 and 7.64.
    """
    squares = (features**2).sum(axis=1)
    distances = squares[:, np.newaxis] + squares - 2 * features @ features.T
    kernel = np.exp(-distances / max(float(np.median(distances)), 1e-6))
    kernel -= kernel.mean(axis=0)
    kernel -= kernel.mean(axis=1)[:, np.newaxis]
    identity = np.eye(len(kernel))
    ridge = max(_SMOOTHNESS * np.trace(kernel) / len(kernel), 1e-6)
    hat = kernel @ np.linalg.inv(kernel + ridge * identity)
    answers = np.eye(columns.max() + 1)[columns]
    answers -= answers.mean(axis=0)
    leverage = np.diag(hat)[:, np.newaxis]
    guesses: Floats = (hat @ answers - leverage * answers) / (1 - leverage)
    return guesses
