"""Steps that find the copies in a dataset, and reject all but one of each cluster."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PBegin, PCollection

from beam_tfr.dataset.base import BaseDataset
from beam_tfr.output.copied_images import CopiedImages
from beam_tfr.planning import packing
from beam_tfr.schema.encoded_ref import EncodedRef
from beam_tfr.transforms.counting import FunctionDoFn

_REASON = b"duplicate"


@dataclasses.dataclass(eq=False, repr=False)
class FindCopies(beam.PTransform):
    """Finds the copies in a dataset, on one worker, by its contents and sidecars.

    Attributes:
        base: the dataset.
        rejects: whether the copies to reject are asked for, instead of all.

    Output: packed (key, NUL, name of the cluster), as `ChooseSplits.groups`; of rejects (key, NUL,
    a sentence that says of which image it is a copy), as `reject_copies` takes them.
    """

    base: BaseDataset
    _: dataclasses.KW_ONLY
    rejects: bool = False

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        find = functools.partial(_find_copies, base=self.base, rejects=self.rejects)
        finding = beam.ParDo(FunctionDoFn(find)).with_output_types(bytes)
        return begin | beam.Create([None]) | "Find" >> finding


def _find_copies(_: None, *, base: BaseDataset, rejects: bool) -> Iterator[bytes]:
    copied = CopiedImages.find(base)
    values = copied.list_rejects() if rejects else copied.list_groups()
    return packing.pack_batches(values)


def reject_copies(refs: PCollection[bytes], copies: PCollection[bytes]) -> PCollection[bytes]:
    """Turns references of copies into those of rejects.

    Args:
        refs: encoded `ImageRef`s, as `packing.pack_batches` packs them; so are those that are
            returned.
        copies: the output of `FindCopies` of rejects. Each worker holds all of them.
    """
    rejecting = beam.ParDo(FunctionDoFn(_reject_refs), _collect(copies))
    return refs | "RejectCopies" >> rejecting.with_output_types(bytes)


def _collect(packs: PCollection[bytes]) -> AsSingleton:
    """The side input of packed (key, NUL, value): key -> value."""
    joined = packs | "AllCopies" >> beam.combiners.ToList()
    return AsSingleton(joined | "CopiesByKey" >> beam.Map(_parse_values))


def _parse_values(packs: Sequence[bytes]) -> dict[bytes, bytes]:
    values = dict[bytes, bytes]()
    for packed in packs:
        for pair in packing.unpack_values(packed):
            key, _, value = pair.partition(b"\0")
            values[key] = value
    return values


def _reject_refs(packed: bytes, details: Mapping[bytes, bytes]) -> Iterator[bytes]:
    refs = list[bytes]()
    for encoded in packing.unpack_values(packed):
        ref = EncodedRef.parse(encoded)
        detail = details.get(ref.key)
        if detail is not None and not ref.reason:
            encoded = ref.encode_as_reject(_REASON, detail)
        refs.append(encoded)
    return packing.pack_batches(refs)
