"""Previews a conversion from its listing and a sample, for `beam-tfr plan`; writes nothing."""

from beam_tfr.preview.previewing import preview as preview
from beam_tfr.preview.result import Preview as Preview
