"""Finds where an interrupted Keras training resumes. docs/reader.md has the recipe."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.reader_arguments import integer
from beam_tfr.schema import DataError, UsageError

WEIGHTS_FILE = "latest.weights.h5"  # of keras.callbacks.BackupAndRestore
PREVIOUS_SUFFIX = ".bkp"  # of the backup before that, with double_checkpoint=True


class Position(NamedTuple):
    """Finished epochs, and finished steps of the next one: `epoch` and `start_step` for `load`."""

    epoch: int
    step: int


def resume_position(model: Any, backup_dir: str | os.PathLike[str], steps_per_epoch: int) -> Position:
    """Loads the last backup of `keras.callbacks.BackupAndRestore` into a model, and returns its position.

    The number of finished steps is taken from the optimizer (`optimizer.iterations`), so weights and position always
    match. With `double_checkpoint=True`, the previous backup is loaded if the process died while writing one.

    Args:
        model: a Keras model, built and compiled as it was when it was saved.
        backup_dir: the folder of the callback.
        steps_per_epoch: batches of an epoch; see `beam_tfr.reader.steps_per_epoch`.

    Returns:
        The position; (0, 0) if nothing was saved, and the model is then unchanged.

    Raises:
        UsageError: the model is not built or not compiled.
        DataError: the backup is damaged, or from another model.
    """
    steps_per_epoch = integer("steps_per_epoch", steps_per_epoch, 1)
    folder = os.fspath(backup_dir)
    if not getattr(model, "built", False):
        raise UsageError("`model=` is not built: start it with keras.Input, or call it on a batch first")
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise UsageError("`model=` has no optimizer, whose iterations count the finished steps; compile it first")
    latest = storage.join(folder, WEIGHTS_FILE)
    there = [path for path in (latest, latest + PREVIOUS_SUFFIX) if storage.find(path)]
    if not there:
        return Position(0, 0)
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    problems = []
    for path in there:
        try:
            with tempfile.TemporaryDirectory(prefix="beam_tfr-") as scratch:  # Keras goes by the end of the name
                copy = os.path.join(scratch, WEIGHTS_FILE)
                with storage.open_binary(path) as source, open(copy, "wb") as target:
                    shutil.copyfileobj(source, target)
                model.load_weights(copy)
        except (OSError, KeyError, ValueError) as error:  # what h5py and Keras raise for a file or model that is wrong
            problems.append(f"{path}: {str(error).strip().splitlines()[0]}")
            continue
        return Position(*divmod(int(optimizer.iterations.numpy()), steps_per_epoch))
    raise DataError(
        f"cannot load a backup: {'; '.join(problems)}. If it was cut off, BackupAndRestore(double_checkpoint=True) "
        "keeps the one before; if it is from another model, give another `backup_dir=`"
    )
