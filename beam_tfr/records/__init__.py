"""Reads and writes records: TFRecord files, the Examples in them, and tensors made from arrays."""
