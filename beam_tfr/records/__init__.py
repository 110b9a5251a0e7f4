"""Records: TFRecord files, the Examples in them, and tensors from arrays."""
