"""Writes schema.pbtxt, which describes the features of a dataset for TensorFlow Metadata.

The file is a `tensorflow_metadata.proto.v0.Schema`.
"""

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.metadata.summary import quote
from beam_tfr.schema.feature_names import ENCODED, FeatureSpec

_TYPES = {"int64": "INT", "float": "FLOAT", "bytes": "BYTES"}


def schema_text(dataset: Manifest) -> str:
    """Returns the schema in protobuf's text format."""
    specs = sorted(dataset.feature_specs.items())
    return "".join(_feature_text(dataset, name, spec) for name, spec in specs)


def _feature_text(dataset: Manifest, name: str, spec: FeatureSpec) -> str:
    lines = [f"name: {quote(name)}", f"type: {_TYPES[spec.dtype]}"]
    if spec.shape:
        lines.append("value_count { }")
    else:
        lines += ["presence { min_fraction: 1 min_count: 1 }", "shape { }"]
    lines += _domain(dataset, name)
    text = "".join(f"  {line}\n" for line in lines)
    return f"feature {{\n{text}}}\n"


def _domain(dataset: Manifest, name: str) -> list[str]:
    """Returns the line with the possible values of a feature; no line if they are unknown."""
    lowest = 0
    texts = [*dataset.class_names]
    if dataset.options.get("label_column"):  # records without a class have the label -1, no text
        lowest = -1
        texts.append("")
    if name == ENCODED:
        return ["image_domain { }"]
    if name == dataset.names.label:
        highest = len(dataset.class_names) - 1
        return [f"int_domain {{ min: {lowest} max: {highest} is_categorical: true }}"]
    if name == dataset.names.text:
        values = "".join(f"value: {quote(text)} " for text in texts)
        return [f"string_domain {{ {values}}}"]
    return []
