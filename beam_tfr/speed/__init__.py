"""Measures how fast images are read for training, in several ways: `beam-tfr bench`.

`ways` holds the ways, `turns` measures them, `traces` records what they do.
"""
