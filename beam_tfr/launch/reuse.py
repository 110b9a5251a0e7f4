"""Decides which records an update can copy from the existing dataset."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_tfr.dataset.base import BaseDataset, RecordBoxes, planned_shards
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.options import ImageOptions
from beam_tfr.options.groups import LIMITS
from beam_tfr.options.run import UpdateOptions
from beam_tfr.options.table import options_of
from beam_tfr.options.tabular import BOX_OPTIONS
from beam_tfr.output import codec_versions, sidecars
from beam_tfr.schema import differences
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.renames import find_renamed, parse_renames
from beam_tfr.sources import Input

KEPT_CODECS = "kept_codecs"  # in the options of a manifest: versions that made some of the records


def choose_base(
    dataset: Manifest, source: Input, update: UpdateOptions, say: Callable[[str], object]
) -> tuple[BaseDataset | None, Sequence[str]]:
    """Chooses the dataset that an update copies records from.

    Args:
        dataset: the existing dataset.
        source: the input of the update.
        update: how to compare images, and what to do if different codec versions made the records.
        say: called with the reason if all images are converted again.

    Returns:
        The dataset, or None if it cannot even be compared; and the codec versions, other than the
        current ones, that made some of the records to copy.

    Raises:
        UsageError: different codec versions made some records, and `update` does not say what to
            do with them.
    """
    if source.plan.options["encoding"] == "row":  # copying a record is as slow as making it
        return None, []
    comparison = _Comparison(dataset, source)
    obstacle = comparison.find_obstacle()
    if obstacle:
        say(f"{obstacle}: all images are converted again")
        return _compare_only(dataset), []
    codecs = _read_codecs(dataset)
    if codecs is None:
        say(
            f"the folder .sources in {dataset.folder}, which records its sources, is missing: all "
            "images are converted again"
        )
        return None, []
    base = BaseDataset(
        dataset.folder,
        dataset.fields["manifest_digest"],
        compare="names" if comparison.is_relisted else update.compare,
        with_rejects=comparison.keeps_rejects(codecs),
        codecs=codecs,
        rows_stay=comparison.has_same_columns(),
        boxes=comparison.compare_boxes(),
        renames=comparison.find_renames(),
    )
    return _settle_codecs(base, dataset, source, update.codecs)


def _compare_only(dataset: Manifest) -> BaseDataset | None:
    """Returns the dataset for an update that copies no record; None if its sources are unknown."""
    if _read_codecs(dataset) is None:
        return None
    return BaseDataset.of(dataset)._replace(with_rejects=False, copies=False)


class _Comparison:
    """A comparison of a dataset with the dataset that its update makes.

    Attributes:
        is_relisted: whether the input is the list of images that the dataset was made from.
        changed_options: the image options that differ.
    """

    def __init__(self, dataset: Manifest, source: Input) -> None:
        self._dataset = dataset
        self._before = dataset.options
        self._now = source.plan.options
        self._features_before = FeaturesDict.from_options(self._before)
        self._features = FeaturesDict.from_options(self._now, labelled=source.plan.labelled)
        self._follow_pixels = self._features.follows_pixels or self._features_before.follows_pixels
        self.is_relisted = isinstance(source.origin, BaseDataset)
        options = options_of(ImageOptions).items()
        self.changed_options = self._find_changed(
            [name for name, option in options if option.changes_data]
        )

    def find_obstacle(self) -> str:
        """Returns the reason why no record can be copied, or "" if some records can be."""
        stricter = [name for name in self.changed_options if not self._is_looser(name)]
        if self._follow_pixels:
            names = ("feature_columns", *BOX_OPTIONS, "pair")
            stricter = self._find_changed(names) + stricter
        if stricter:
            return f"`{stricter[0]}=` differs"
        companions = self._features.companions or self._features_before.companions
        if companions and not self.is_relisted:
            keys = ", ".join(companion.key for companion in companions)
            return f"masks or other files of the images ({keys}) may have changed"
        return ""

    def keeps_rejects(self, codecs: str) -> bool:
        """Whether rejected images would be rejected again.

        Args:
            codecs: the codecs that made the dataset, as JSON.
        """
        if self.changed_options:
            return False
        return self.is_relisted or not _find_new_codecs(codecs, self._now)

    def has_same_columns(self) -> bool:
        """Whether the columns of the contents stay the same."""
        before = {name: feature["shape"] for name, feature in self._dataset.features.items()}
        now = {name: [*spec.shape] for name, spec in self._features.specs.items()}
        return before == now

    def find_renames(self) -> tuple[tuple[str, str], ...]:
        """Returns class -> new name, for the classes that are renamed."""
        renamed = find_renamed(
            parse_renames(self._before.get("rename", ())),
            parse_renames(self._now.get("rename", ())),
            self._dataset.class_names,
        )
        return tuple(renamed.items())

    def compare_boxes(self) -> RecordBoxes:
        """Finds out whether the boxes of copied records may have changed."""
        if not self._follow_pixels:
            return RecordBoxes.NONE
        return RecordBoxes.STAY if self.is_relisted else RecordBoxes.MAY_CHANGE

    def _find_changed(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self._before.get(name) != self._now.get(name)]

    def _is_looser(self, name: str) -> bool:
        """Whether a limit allows more images than before, so that all records stay valid."""
        before = self._before.get(name)
        now = self._now.get(name)
        if options_of(ImageOptions)[name].group != LIMITS or before is None:
            return False
        if now is None:
            return True
        return bool(now < before if name.startswith("min_") else now > before)


def find_new_codecs(dataset: Manifest) -> list[str]:
    """Returns installed codecs that were missing when images of a dataset could not be decoded."""
    if not dataset.counts["rejected"].get("unsupported-image"):
        return []
    return _find_new_codecs(_read_codecs(dataset) or "{}", dataset.options)


def _find_new_codecs(codecs: str, options: Mapping[str, Any]) -> list[str]:
    """Returns the installed codecs that are not in `codecs`, a dataset's codecs as JSON."""
    return differences.find_new_codecs(json.loads(codecs), codec_versions.used_versions(options))


def _read_codecs(dataset: Manifest) -> str | None:
    """Reads the codecs that a dataset was written with, as JSON, from its first sidecar, if any."""
    for shard in planned_shards(dataset):
        with contextlib.suppress(OSError):
            sidecar = sidecars.read_published_sidecar(dataset.folder, shard)
            if sidecar:
                return sidecar.info.shard.codecs
    return None


def _settle_codecs(
    base: BaseDataset, dataset: Manifest, source: Input, codecs: str
) -> tuple[BaseDataset | None, Sequence[str]]:
    """Decides what to do with records that different codec versions made.

    Args:
        codecs: the option of `update`: "keep", "convert", or empty.

    Returns:
        See `choose_base`.
    """
    used = codec_versions.used_versions(source.plan.options)
    older = {*dataset.options.get(KEPT_CODECS, ())}
    if not codecs:
        base.check_codecs(used)
        if older:
            raise UsageError(
                "some records of the dataset were made with different codec versions "
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
        base = base._replace(codecs="")  # the codecs do not matter
    if older and codecs == "convert":
        return _compare_only(dataset), []
    return base, sorted(older)
