"""Decides which image goes to which file, from references and a small sample of images.

The images of a split are ordered by `order_key(seed, key)`, a global shuffle that is the same
everywhere. A shard is a contiguous part of that order. The sizes of a split's shards differ by at
most one image, because the cuts between shards are exact: a histogram of the first bits of order
keys shows which buckets contain cuts, and the keys in those few buckets are sorted.
"""
