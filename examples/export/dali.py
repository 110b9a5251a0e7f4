"""The format `dali-index`: for each shard an index, as DALI's `fn.readers.tfrecord(index_path=…)` takes it."""

from beam_tfr.dataset.lookup import Lookup
from beam_tfr.dataset.splits import Part
from beam_tfr.records.tfrecords import FRAME_BYTES, HEADER_BYTES
from examples.export.conditions import matching
from examples.export.shard import Shard, create


def write_index(shard: Shard, path: str) -> None:
    """Writes the index of a shard by its contents: a line with offset and size of each record, as it is framed."""
    entry = shard.entry
    part = Part(shard.path, entry.num_examples, 0, entry.num_examples, entry.num_bytes)
    table = Lookup(shard.dataset, [part]).open(part)
    wanted = matching(shard.dataset, entry, shard.where)
    rows = zip(table.column("offset").to_pylist(), table.column("length").to_pylist(), strict=True)
    lines = [
        f"{offset - HEADER_BYTES} {length + FRAME_BYTES}\n"
        for number, (offset, length) in enumerate(rows)
        if number in wanted
    ]
    with create(shard.output, path) as file:
        file.write("".join(lines).encode())
    shard.report(len(lines), len(table))
