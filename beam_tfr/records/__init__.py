"""Reads and writes records: TFRecord files, the Examples in them, and tensors from arrays."""
