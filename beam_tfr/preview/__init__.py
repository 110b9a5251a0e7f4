"""Previews a conversion for `beam-tfr plan`, from a listing and a sample; writes nothing."""

from beam_tfr.preview.previewing import preview as preview
from beam_tfr.preview.result import Preview as Preview
