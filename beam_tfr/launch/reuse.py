"""Decides what an update can copy from the dataset that is there."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_tfr.dataset.base import BaseDataset, RecordBoxes, planned_shards
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.options import ImageOptions
from beam_tfr.options.run import UpdateOptions
from beam_tfr.options.table import LIMITS, options_of
from beam_tfr.options.tabular import BOX_OPTIONS
from beam_tfr.output import codec_versions, sidecars
from beam_tfr.schema.errors import UsageError
from beam_tfr.sources import Input

KEPT_CODECS = "kept_codecs"  # in the options of a manifest: versions that made some of the records


def choose_base(
    dataset: Manifest, source: Input, update: UpdateOptions, say: Callable[[str], object]
) -> tuple[BaseDataset | None, Sequence[str]]:
    """Chooses what an update copies records from.

    Args:
        dataset: the dataset that is there.
        source: the input of the update.
        update: how to compare images, and what to do if other codecs made the records.
        say: called with the reason if all images are converted again.

    Returns:
        The dataset, or None to convert all images; and the versions of other codecs that made some
        of the records that are copied.

    Raises:
        UsageError: other codecs made records, and `update` does not say what to do with them.
    """
    if source.plan.options["encoding"] == "row":  # a record is copied no faster than it is made
        return None, []
    changed = _changed_image_options(dataset.options, source.plan.options)
    obstacle = _find_obstacle(dataset, source, changed)
    if obstacle:
        say(f"{obstacle}: all images are converted again")
        return None, []
    codecs = _read_codecs(dataset)
    if codecs is None:
        say(
            f"the folder .sources of {dataset.folder}, which says what it was made from, is "
            "missing: all images are converted again"
        )
        return None, []
    is_relisted = isinstance(source.origin, BaseDataset)
    base = BaseDataset(
        dataset.folder,
        dataset.fields["manifest_digest"],
        compare="names" if is_relisted else update.compare,
        with_rejects=not changed,
        codecs=codecs,
        rows_stay=_has_same_columns(dataset, source),
        boxes=_compare_boxes(dataset, source),
    )
    return _settle_codecs(base, dataset, source, update.codecs)


def _changed_image_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The options of images that differ."""
    options = options_of(ImageOptions).items()
    names = [name for name, option in options if option.changes_data]
    return [name for name in names if before.get(name) != now.get(name)]


def _find_obstacle(dataset: Manifest, source: Input, changed: Sequence[str]) -> str:
    """Why no record can be copied; empty if some can.

    Args:
        changed: the options of images that differ.
    """
    before = dataset.options
    now = source.plan.options
    if _follow_pixels(before) or _follow_pixels(now):
        for name in ("feature_columns", *BOX_OPTIONS, "pair"):
            if before.get(name) != now.get(name):
                return f"`{name}=` differs"
    for name in changed:
        if not _is_looser(name, before.get(name), now.get(name)):
            return f"`{name}=` differs"
    companions = (
        FeaturesDict.from_options(now).companions or FeaturesDict.from_options(before).companions
    )
    if companions and not isinstance(source.origin, BaseDataset):
        keys = ", ".join(companion.key for companion in companions)
        return f"files beside the images ({keys}) may have changed"
    return ""


def _follow_pixels(options: Mapping[str, Any]) -> bool:
    """Whether records hold boxes, masks or others that follow the pixels of their image."""
    return FeaturesDict.from_options(options).follows_pixels


def _is_looser(name: str, before: Any, now: Any) -> bool:
    """Whether a limit lets more images pass than before, so all records stay as they are."""
    if options_of(ImageOptions)[name].group != LIMITS or before is None:
        return False
    if now is None:
        return True
    return bool(now < before if name.startswith("min_") else now > before)


def _read_codecs(dataset: Manifest) -> str | None:
    """The codecs that made a dataset, as JSON, from the first sidecar that is there; else None."""
    for shard in planned_shards(dataset):
        with contextlib.suppress(OSError):
            sidecar = sidecars.read_published_sidecar(dataset.folder, shard)
            if sidecar:
                return sidecar.info.shard.codecs
    return None


def _has_same_columns(dataset: Manifest, source: Input) -> bool:
    """Whether the contents will have the columns that they have."""
    before = {name: feature["shape"] for name, feature in dataset.features.items()}
    features = FeaturesDict.from_options(source.plan.options, labelled=source.plan.labelled)
    now = {name: [*spec.shape] for name, spec in features.specs.items()}
    return before == now


def _compare_boxes(dataset: Manifest, source: Input) -> RecordBoxes:
    """Whether the boxes of the records that are copied may have changed."""
    if not (_follow_pixels(dataset.options) or _follow_pixels(source.plan.options)):
        return RecordBoxes.NONE
    if isinstance(source.origin, BaseDataset):
        return RecordBoxes.STAY
    return RecordBoxes.MAY_CHANGE


def _settle_codecs(
    base: BaseDataset, dataset: Manifest, source: Input, codecs: str
) -> tuple[BaseDataset | None, Sequence[str]]:
    """Settles what happens to records that other codecs made than those that are used now.

    Args:
        codecs: the option of `update`: "keep", "convert", or empty.

    Returns:
        As `choose_base`.
    """
    used = codec_versions.used_versions(source.plan.options)
    older = {*dataset.options.get(KEPT_CODECS, ())}
    if not codecs:
        base.check_codecs(used)
        if older:
            raise UsageError(
                f"some records of the dataset were made by other codecs "
                f"({', '.join(sorted(older))}); `codecs=keep` keeps them, `codecs=convert` "
                "converts all images again",
                option="codecs",
            )
        return base, []
    try:
        base.check_codecs(used)
    except UsageError:
        made_by = json.loads(base.codecs or "{}")
        older.update(f"{name} {version}" for name, version in made_by.items())
        base = base._replace(codecs="")  # they do not matter
    if older and codecs == "convert":
        return None, []
    return base, sorted(older)
