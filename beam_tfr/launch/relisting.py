"""Opens the images of a dataset as the input of an update or of the second step of a conversion."""

from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.options import ConvertOptions
from beam_tfr.options.groups import NOT_ABOUT_RECORDS
from beam_tfr.options.table import options_of
from beam_tfr.planning.drafts import PlanSettings
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.renames import find_renamed, original_names, parse_renames
from beam_tfr.schema.spelling import spell_option
from beam_tfr.sources import Input

NEEDS_IMAGES = "needs the images: specify `input=` or `table=` too"


def open_dataset(options: ConvertOptions, dataset: Manifest, changes: Mapping[str, Any]) -> Input:
    """Opens the images of a dataset as an input.

    Raises:
        UsageError: an option needs the images themselves, or selects other images.
    """
    limit = dataset.options.get("limit")
    if limit is not None and options.seed != dataset.options["seed"]:
        raise UsageError(
            f"selects other images, because the dataset has {spell_option('limit', limit)}: "
            f"{NEEDS_IMAGES}",
            option="seed",
            value=options.seed,
        )
    options_table = options_of(ConvertOptions).items()
    allowed = {name for name, option in options_table if option.group in NOT_ABOUT_RECORDS}
    allowed.add("rename")
    if "duplicates" in changes:
        _check_unsettled(options, dataset)
        allowed.add("duplicates")
    for name, value in changes.items():
        if name not in allowed:
            raise UsageError(NEEDS_IMAGES, option=name, value=value)
    now = options.data_options(None)
    data_options = {**dataset.options, **options.stored_compression}
    data_options |= {name: now[name] for name in now.keys() & allowed}
    plan = PlanSettings(
        name=options.name,
        suffix=options.suffix,
        options=data_options,
        labelled=dataset.names.label in dataset.features,
        first=classes_in_own_order(dataset, options),
    )
    base = BaseDataset.of(dataset)._replace(compare="names")
    renames = find_renamed_classes(dataset, options)
    return Input(root="", origin=base, plan=plan, renames=renames)


def find_renamed_classes(dataset: Manifest, options: ConvertOptions) -> dict[str, str]:
    """Returns class -> new name, for the classes of a dataset that options rename."""
    before = parse_renames(dataset.options.get("rename", ()))
    return find_renamed(before, parse_renames(options.rename), dataset.class_names)


def classes_in_own_order(dataset: Manifest, options: ConvertOptions) -> Sequence[str]:
    """Returns the (renamed) classes of a dataset if they are not in sorted order.

    Their ids then come from an older dataset. Returns an empty list if they are sorted.
    """
    names = [*dataset.class_names]
    before = parse_renames(dataset.options.get("rename", ()))
    originals = [*original_names(names, before).values()]
    if originals == sorted(originals):
        return []
    are_numbers = all(name.removeprefix("-").isdecimal() for name in originals)
    if are_numbers and originals == sorted(originals, key=int):
        return []
    renamed = find_renamed_classes(dataset, options)
    return [renamed.get(name, name) for name in names]


def _check_unsettled(options: ConvertOptions, dataset: Manifest) -> None:
    """Checks that the copies in a dataset can still be handled as the options specify.

    Raises:
        UsageError: the copies were already grouped or dropped, which cannot be undone.
    """
    before = dataset.options.get("duplicates", "report")
    if before not in ("report", options.duplicates):
        raise UsageError(
            f"cannot undo {spell_option('duplicates', before)} in {dataset.folder}: {NEEDS_IMAGES}",
            option="duplicates",
            value=options.duplicates,
        )
