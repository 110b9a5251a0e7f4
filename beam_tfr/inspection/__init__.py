"""Shows the contents of a dataset or of any TFRecord files.

`inspect` needs neither TensorFlow nor Beam.

    from beam_tfr.inspection import inspect
    inspect("gs://bucket/flowers").contact_sheet().save("flowers.png")

`record_files` finds and reads files, `searching` chooses records, `records` describes them,
`pictures` draws them, `sheets` arranges them, using `fonts` and `legend`, and `inspecting` combines
all of these.
"""

from beam_tfr.inspection.inspecting import Inspection, inspect
from beam_tfr.inspection.records import InspectedRecord

__all__ = ["InspectedRecord", "Inspection", "inspect"]
