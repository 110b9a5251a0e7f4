"""Trains Keras models; training can resume within an epoch."""

import os
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.reader.loading import load
from beam_tfr.schema.errors import DataError, UsageError, without_traceback
from beam_tfr.schema.untrusted import quote

_LATEST = "latest.weights.h5"  # names that Keras' BackupAndRestore uses
_BEFORE = "latest.weights.h5.bkp"
# Arguments of `load` and `Model.fit` that `fit` sets itself.
_OWN = ("epoch", "start_step", "repeat", "initial_epoch", "steps_per_epoch", "x")


class _Backup(keras.callbacks.BackupAndRestore):
    def on_train_begin(self, logs: Any = None) -> None:
        """Restores nothing: the weights are already loaded, and `Model.fit` is told the epoch."""


@without_traceback
def fit(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    epochs: int,
    backup: str | os.PathLike[str],
    save_freq: int = 500,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    fit_options: dict[str, Any] | None = None,
    **load_options: Any,
) -> keras.callbacks.History:
    """Trains a model on a split of a dataset; the same program resumes within an epoch.

    The optimizer counts the steps, so its backup shows where to resume. A training run that was
    killed and resumed ends with the same weights as an uninterrupted run if operations are
    deterministic and no layer has a random state.

    Args:
        model: a model that is built and compiled.
        path: the folder that `convert` wrote, local or gs://.
        epochs: total number of epochs to train.
        backup: a folder for backups of this training only; remove the folder when training is done.
        save_freq: number of steps between backups.
        callbacks: additional Keras callbacks.
        fit_options: further arguments for `Model.fit`, such as `validation_data`, `class_weight`
            and `verbose`.
        load_options: arguments for `load`: `split`, `batch_size`, `seed` and so on; `shuffle` is
            True by default.

    Returns:
        The History that `Model.fit` returns, for the epochs of this run; its `history` maps each
        name to one value per epoch.

    Raises:
        UsageError: an argument is wrong, or the model is not built and compiled.
        DataError: no backup in the folder belongs to this model.
    """
    check_integer("epochs", epochs, 1)
    check_integer("save_freq", save_freq, 1)
    settings = {"shuffle": True, **load_options}
    fit_settings = {"shuffle": False, **(fit_options or {})}
    _check_arguments(model, {**load_options, **(fit_options or {})})
    steps = len(load(path, **settings))
    folder = os.fspath(backup)
    all_callbacks = [
        _Backup(folder, save_freq=save_freq, double_checkpoint=True, delete_checkpoint=False),
        *callbacks,
    ]
    _restore(model, folder)
    epoch, step = divmod(int(model.optimizer.iterations), steps)
    history = _begin_history(model)
    if step and epoch < epochs:
        rest = load(path, epoch=epoch, start_step=step, **settings)
        trained = model.fit(
            rest, initial_epoch=epoch, epochs=epoch + 1, callbacks=all_callbacks, **fit_settings
        )
        _extend(history, trained)
        epoch += 1
    if epoch < epochs:
        whole = load(path, epoch=epoch, repeat=True, **settings)
        trained = model.fit(
            whole,
            steps_per_epoch=steps,
            initial_epoch=epoch,
            epochs=epochs,
            callbacks=all_callbacks,
            **fit_settings,
        )
        _extend(history, trained)
    return history


def _check_arguments(model: keras.Model, options: dict[str, Any]) -> None:
    """Checks the arguments before any data is read.

    Raises:
        UsageError: an argument is wrong, or the model is not ready.
    """
    for name in _OWN:
        if name in options:
            raise UsageError("is set by `fit`: remove it", option=name, value=options[name])
    for name in ("split", "batch_size"):
        if options.get(name) is None:
            raise UsageError(f"specify `{name}=`, as for `load`")
    if getattr(model, "optimizer", None) is None or not model.built:
        raise UsageError(
            "the model is not ready: call `model.compile(optimizer, loss)`, and define its input, "
            "for example with `keras.Input`"
        )


def _restore(model: keras.Model, folder: str) -> None:
    """Loads weights and optimizer from the last intact backup, if there is one.

    Raises:
        DataError: no backup belongs to this model.
    """
    latest = os.path.join(folder, _LATEST)
    before = os.path.join(folder, _BEFORE)
    if not tf.io.gfile.exists(latest):
        return
    model.optimizer.build(model.trainable_variables)
    problem = _load_backup(model, latest)
    if not problem:
        return
    if tf.io.gfile.exists(before):  # intact if the process died while it wrote the latest
        tf.io.gfile.copy(before, latest, overwrite=True)
        if not _load_backup(model, latest):
            warnings.warn(
                f"{latest}: {problem}; using the backup before it instead",
                RuntimeWarning,
                stacklevel=3,
            )
            return
    raise DataError(
        f"{latest} is not a backup of this model: {problem}; remove {folder} to start over, or "
        "use another `backup=`"
    )


def _load_backup(model: keras.Model, path: str) -> str:
    """Loads a backup; returns what is wrong with it, or an empty string if nothing is."""
    try:
        model.load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        return quote(str(error))
    return ""


def _begin_history(model: keras.Model) -> keras.callbacks.History:
    """Makes the history of a training run that has not finished an epoch yet."""
    history = keras.callbacks.History()
    history.set_model(model)
    history.on_train_begin()
    return history


def _extend(history: keras.callbacks.History, more: keras.callbacks.History) -> None:
    """Adds the epochs of another training run of the same model to a history."""
    history.set_params(more.params)
    history.epoch.extend(more.epoch)
    for name, values in more.history.items():
        history.history.setdefault(name, []).extend(values)
