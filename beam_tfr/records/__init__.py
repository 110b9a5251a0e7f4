"""Records: TFRecord files, the Examples in them, and tensors from arrays."""

from beam_tfr.records.tfrecords import RecordFile as RecordFile
