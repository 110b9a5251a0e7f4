"""Chooses the split of each reference, by the fractions of each class and by groups."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import with_input_types, with_output_types
from apache_beam.utils.windowed_value import WindowedValue

from beam_tfr.engine import interrupt
from beam_tfr.layouts.parsing import Layout
from beam_tfr.planning import packing
from beam_tfr.planning.strata import (
    Bucket,
    ClassCounts,
    Group,
    GroupSurvey,
    StrataCuts,
    StrataDraft,
    StrataSurvey,
    Unit,
    draft_groups,
    draft_images,
    list_single_units,
    regroup,
    update_splits,
)
from beam_tfr.planning.survey import order_keys
from beam_tfr.schema.encoded_ref import EncodedRef, SplitField, key_of, parse_pairs
from beam_tfr.transforms.counting import FunctionDoFn, count
from beam_tfr.transforms.totals import CountRefs, MergeTotals

KEYS_AT_A_TIME = 5_000  # approximate number of keys that a worker joins together
HELD_BYTES = 8 << 20  # 8 MiB of values to divide together
_REFS = b"\0"  # first byte of values to join: their kind
_SPLITS = b"\1"
_GROUPS = b"\2"
_COPIED = b"\3"
_GROUPED = "grouped"

# (element, counts of all images, seed) -> units of the element.
ListUnits = Callable[[Any, ClassCounts, int], Sequence[Unit | None]]
MakeSurvey = Callable[[], StrataSurvey | GroupSurvey]
DraftStrata = Callable[[Any, ClassCounts], StrataDraft]


@with_input_types(bytes)
@with_output_types(bytes)
@dataclasses.dataclass(eq=False, repr=False)
class ChooseSplits(beam.PTransform):
    """Chooses the split of each reference that does not have one yet.

    Groups come first, then single images, which compensate for what groups cannot divide evenly.
    Only images in groups, and images of the dataset being updated, are shuffled.

    Attributes:
        shares: split -> fraction of each class; None if all images already have splits.
        seed: seed for the order in which a class is divided.
        grouped: whether the references may name groups.
        known_splits: splits of images that stay where they are: packed (key, NUL, split). `shares`
            determines the splits of all other images, whatever the references say.
        groups: groups of images that get the same split, whatever the references say: packed (key,
            NUL, group). If all images of a group have splits, `shares` determines which of these
            splits to use; without `shares`, or if some images have no split, the whole group goes
            to the split that most of its images have.
        copied_splits: splits for images that take the place of a copy: packed (key, NUL, split of
            the copy). Such images follow other images of their groups that already have splits.
        known_images: approximate number of images in `known_splits` and `groups`.
        layout: reads the groups of references that have lost their groups since their splits were
            chosen.

    Output: references, packed like the input.
    """

    shares: Mapping[str, Fraction] | None
    _: dataclasses.KW_ONLY
    seed: int
    grouped: bool = False
    known_splits: PCollection[bytes] | None = None
    groups: PCollection[bytes] | None = None
    copied_splits: PCollection[bytes] | None = None
    known_images: int = 0
    layout: Layout | None = None

    def expand(self, refs: PCollection[bytes]) -> PCollection[bytes]:
        if self.layout:
            regrouping = beam.FlatMap(_regroup, layout=self.layout).with_output_types(bytes)
            refs = refs | "Regroup" >> regrouping
        refs = self._join_known(refs)
        if self.grouped or self.groups is not None:
            refs = self._place_groups(refs)
        return self._place_images(refs, self.shares) if self.shares else refs

    def _join_known(self, refs: PCollection[bytes]) -> PCollection[bytes]:
        """Adds known splits and groups to the references, by their keys."""
        known = {
            _SPLITS: self.known_splits,
            _GROUPS: self.groups,
            _COPIED: self.copied_splits,
        }
        present = {kind: values for kind, values in known.items() if values is not None}
        if not present:
            return refs
        parts = 1 + self.known_images // KEYS_AT_A_TIME
        divided = [refs | "RefsByKey" >> beam.ParDo(_DivideByKey(_REFS, parts))]
        labels = {_SPLITS: "SplitsByKey", _GROUPS: "GroupsByKey", _COPIED: "CopiedByKey"}
        for kind, values in present.items():
            divided.append(values | labels[kind] >> beam.ParDo(_DivideByKey(kind, parts)))
        joined = divided | beam.Flatten() | "GroupByPart" >> beam.GroupByKey()
        join = functools.partial(_join_part, are_splits_known=_SPLITS in present)
        joining = beam.ParDo(FunctionDoFn(join))
        return joined | "JoinKnown" >> joining.with_output_types(bytes)

    def _place_groups(self, refs: PCollection[bytes]) -> PCollection[bytes]:
        sorting_out = beam.ParDo(FunctionDoFn(_sort_out)).with_output_types(bytes)
        parts = refs | "SortOut" >> sorting_out.with_outputs(_GROUPED, main="others")
        gathered = parts[_GROUPED] | "GroupByGroup" >> beam.GroupByKey()
        groups = gathered | "Gather" >> beam.MapTuple(_gather).with_output_types(Group)
        arguments = []
        if self.shares:
            packing_groups = beam.FlatMap(_pack_group, shares=tuple(self.shares), seed=self.seed)
            grouped_refs = groups | "PackGroups" >> packing_groups.with_output_types(bytes)
            all_refs = (grouped_refs, parts.others) | "AllRefs" >> beam.Flatten()
            counts = all_refs | "CountBefore" >> beam.CombineGlobally(CountRefs(ClassCounts))
            list_units = functools.partial(_list_group_units, shares=tuple(self.shares))
            draft = functools.partial(draft_groups, shares=self.shares, seed=self.seed)
            cuts = self._find_cuts("Groups", groups, counts, list_units, GroupSurvey, draft)
            arguments = [AsSingleton(cuts), AsSingleton(counts)]
        placing = beam.FlatMap(
            _place_group, *arguments, shares=tuple(self.shares or ()), seed=self.seed
        )
        placed = groups | "PlaceGroups" >> placing.with_output_types(bytes)
        return (parts.others, placed) | "AllPlaced" >> beam.Flatten()

    def _place_images(
        self, refs: PCollection[bytes], shares: Mapping[str, Fraction]
    ) -> PCollection[bytes]:
        counts = refs | "CountClasses" >> beam.CombineGlobally(CountRefs(ClassCounts))
        draft = functools.partial(draft_images, shares=shares)
        cuts = self._find_cuts("Images", refs, counts, _list_image_units, StrataSurvey, draft)
        arguments = [AsSingleton(cuts), AsSingleton(counts)]
        placing = beam.FlatMap(_place_refs, *arguments, seed=self.seed)
        return refs | "PlaceImages" >> placing.with_output_types(bytes)

    def _find_cuts(
        self,
        label: str,
        elements: PCollection[Any],
        counts: PCollection[ClassCounts],
        list_units: ListUnits,
        make_survey: MakeSurvey,
        draft_strata: DraftStrata,
    ) -> PCollection[StrataCuts]:
        """Finds the cuts between splits for the units of some elements.

        Args:
            label: label of the steps.
            elements: references or groups.
            counts: counts of all images.
            list_units: lists the units of an element.
            make_survey: makes an empty survey.
            draft_strata: drafts the cuts, given the survey of all units and the counts.
        """
        surveying = beam.ParDo(
            _SurveyUnits(list_units, make_survey, self.seed), AsSingleton(counts)
        )
        surveys = elements | f"Survey{label}" >> surveying
        survey = surveys | f"Merge{label}" >> beam.CombineGlobally(MergeTotals(make_survey))
        # Beam passes no side inputs to a `functools.partial`.
        drafting = beam.Map(_draft, AsSingleton(counts), draft_strata)
        draft = survey | f"Draft{label}" >> drafting.with_output_types(StrataDraft)
        finding = beam.FlatMap(
            _find_candidates,
            AsSingleton(draft),
            AsSingleton(counts),
            list_units=list_units,
            seed=self.seed,
        ).with_output_types(tuple[Bucket, bytes])
        near_cuts = elements | f"KeepNear{label}" >> finding
        buckets = near_cuts | f"GroupBy{label}Bucket" >> beam.GroupByKey()
        picked = buckets | f"Pick{label}" >> beam.Map(_pick_cuts, AsSingleton(draft))
        finishing = beam.Map(StrataDraft.finish, AsIter(picked)).with_output_types(StrataCuts)
        return draft | f"Cut{label}" >> finishing


@with_output_types(tuple[int, bytes])
class _DivideByKey(beam.DoFn):
    """Divides values that begin with a key into one pack for each part of the keys.

    Args:
        kind: first byte of the packs.
        parts: number of parts.
    """

    def __init__(self, kind: bytes, parts: int) -> None:
        self._kind = kind
        self._parts = parts

    def start_bundle(self) -> None:
        self._held = dict[int, list[bytes]]()
        self._num_bytes = 0

    def process(self, packed: bytes) -> Iterable[tuple[int, bytes]]:
        interrupt.check_interrupt()
        values = packing.unpack_values(packed)
        hashes = order_keys(0, map(key_of, values), b"beam_tfr parts")
        for value, key_hash in zip(values, hashes, strict=True):
            part = int.from_bytes(key_hash[:8], "big") % self._parts
            self._held.setdefault(part, []).append(value)
            self._num_bytes += len(value)
        return self._flush() if self._num_bytes > HELD_BYTES else ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._flush())

    def _flush(self) -> list[tuple[int, bytes]]:
        held = self._held
        self.start_bundle()
        return [(part, self._kind + packing.pack_values(values)) for part, values in held.items()]


def _regroup(packed: bytes, layout: Layout) -> Iterator[bytes]:
    return packing.pack_batches(regroup(packing.unpack_values(packed), layout))


def _join_part(part: tuple[int, Iterable[bytes]], *, are_splits_known: bool) -> Iterator[bytes]:
    """Joins the references in one part of the keys with what is known about them."""
    values = {kind: list[bytes]() for kind in (_REFS, _SPLITS, _GROUPS, _COPIED)}
    for packed in part[1]:
        values[packed[:1]] += packing.unpack_values(packed[1:])
    splits = parse_pairs(values[_SPLITS]) if are_splits_known else None
    groups = parse_pairs(values[_GROUPS])
    copied = parse_pairs(values[_COPIED])
    refs = [*update_splits(values[_REFS], splits, groups, copied)]
    _count_followed(refs, copied)
    yield from packing.pack_batches(refs)


def _count_followed(refs: Iterable[bytes], copied: Mapping[bytes, bytes]) -> None:
    """Counts images that got the split of a copy, except in groups, which have no split yet."""
    if not copied:
        return
    followed = 0
    for ref in EncodedRef.parse_all(refs):
        is_settled = SplitField.parse(ref.split).is_final
        followed += ref.key in copied and is_settled and not ref.reason
    count("followed-images", followed)


def _sort_out(packed: bytes) -> Iterator[Any]:
    """Passes on packed references; sends references in groups to another output, by group."""
    others = []
    grouped = dict[bytes, list[bytes]]()
    for encoded in packing.unpack_values(packed):
        field = SplitField.parse(EncodedRef.parse(encoded).split)
        if field.group:
            grouped.setdefault(field.group, []).append(encoded)
        else:
            others.append(encoded)
    if others:
        yield packing.pack_values(others)
    for group, refs in grouped.items():
        yield beam.pvalue.TaggedOutput(_GROUPED, (group, packing.pack_values(refs)))


def _gather(name: bytes, packs: Iterable[bytes]) -> Group:
    refs = list[bytes]()
    for packed in packs:
        refs += packing.unpack_values(packed)
    return Group.gather(name, refs)


def _pack_group(group: Group, shares: Sequence[str], seed: int) -> Iterator[bytes]:
    return packing.pack_batches(group.encode_refs(group.find_split(shares, seed)))


def _list_image_units(packed: bytes, counts: ClassCounts, seed: int) -> list[Unit | None]:
    return list_single_units(packing.unpack_values(packed), counts, seed)


def _list_group_units(
    group: Group, counts: ClassCounts, seed: int, *, shares: Sequence[str]
) -> list[Unit | None]:
    is_settled = bool(group.find_split(shares, seed))
    return [None if is_settled else group.make_unit(counts, seed)]


class _SurveyUnits(beam.DoFn):
    """Surveys the units of a bundle.

    A combiner cannot do this, since it would need the counts as a side input: all references would
    then be grouped in one place.
    """

    def __init__(self, list_units: ListUnits, make_survey: MakeSurvey, seed: int) -> None:
        self._list_units = list_units
        self._make_survey = make_survey
        self._seed = seed

    def start_bundle(self) -> None:
        self._survey = self._make_survey()

    def process(self, element: Any, counts: ClassCounts) -> Iterable[StrataSurvey | GroupSurvey]:
        interrupt.check_interrupt()
        self._survey.add(filter(None, self._list_units(element, counts, self._seed)))
        return ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield GlobalWindows.windowed_value(self._survey)


def _draft(survey: Any, counts: ClassCounts, draft_strata: DraftStrata) -> StrataDraft:
    return draft_strata(survey, counts)


def _find_candidates(
    element: Any, draft: StrataDraft, counts: ClassCounts, list_units: ListUnits, seed: int
) -> Iterator[tuple[Bucket, bytes]]:
    units = [unit for unit in list_units(element, counts, seed) if unit]
    return draft.find_candidates(units)


def _pick_cuts(
    bucket: tuple[Bucket, Iterable[bytes]], draft: StrataDraft
) -> tuple[Bucket, list[tuple[int, bytes]]]:
    return bucket[0], draft.pick_cuts(*bucket)


def _place_group(
    group: Group,
    cuts: StrataCuts | None = None,
    counts: ClassCounts | None = None,
    *,
    shares: Sequence[str],
    seed: int,
) -> Iterator[bytes]:
    """Packs the references of a group, with the split of the group."""
    split = group.find_split(shares, seed)
    if not split and cuts and counts:
        split = cuts.choose_split(group.make_unit(counts, seed))
    borrowed = group.count_borrowed()
    if borrowed:
        followed = borrowed.pop(split, 0)
        count("followed-images", followed)
        count("moved-images", borrowed.total())
    return packing.pack_batches(group.encode_refs(split))


def _place_refs(packed: bytes, cuts: StrataCuts, counts: ClassCounts, seed: int) -> Iterator[bytes]:
    """Packs references, each with its split."""
    refs = packing.unpack_values(packed)
    units = list_single_units(refs, counts, seed)
    placed = []
    for encoded, unit in zip(refs, units, strict=True):
        if unit:
            split = cuts.choose_split(unit)
            encoded = EncodedRef.parse(encoded).encode_in(split.encode())
        placed.append(encoded)
    yield packing.pack_values(placed)
