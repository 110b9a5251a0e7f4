"""`beam-tfr plan`: previews a conversion by its listing and a sample.

Writes nothing.
"""

from beam_tfr.preview.previewing import preview as preview
from beam_tfr.preview.result import Preview as Preview
