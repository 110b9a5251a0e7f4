"""Measures how fast images are read for training, by several methods: `beam-tfr bench`.

`ways` defines the methods, `turns` measures them, and `traces` records what they do.
"""
