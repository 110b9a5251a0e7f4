"""Programs that use beam_tfr, and are not part of it."""
