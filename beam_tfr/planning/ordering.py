"""The order of the images of a split: a global shuffle by hash, the same everywhere."""

from __future__ import annotations

import hashlib

from beam_tfr.schema import SplitPlan

ORDER_BYTES = 16
BUCKET_BITS = 16  # of the histogram; cuts are exact anyway, but with finer buckets fewer keys are compared


def order_key(seed: int, key: str) -> bytes:
    """The place of an image in the order of its split: 16 bytes, BLAKE2b of seed and key."""
    return order_key_of(seed, key.encode("utf-8", "surrogateescape"))


def order_key_of(seed: int, key: bytes) -> bytes:
    """`order_key` of an encoded key."""
    return hashlib.blake2b(b"%d\0%b" % (seed, key), digest_size=ORDER_BYTES, person=b"beam_tfr order").digest()


def bucket_of(order: bytes) -> int:
    """The histogram bucket of an order key: its first bits."""
    return int.from_bytes(order[:4], "big") >> (32 - BUCKET_BITS)


def planned_total(of: SplitPlan, index: int) -> int:
    """Number of images in the `index`-th shard of a split."""
    return first_rank(of, index + 1) - first_rank(of, index)


def first_rank(of: SplitPlan, index: int) -> int:
    """Rank in the order of the split of the first image of the `index`-th shard."""
    return index * of.matched // of.num_shards
