"""The Flex Template: its parameters and spec file, made from the option table."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.options import ConvertOptions
from beam_tfr.options.table import GROUPS, Option
from beam_tfr.schema import RunError, UsageError

TITLE = "Images to TFRecords"
ABOUT = (
    "Converts images on Cloud Storage to sharded, verified GZIP TFRecords of tf.train.Example. Every matching "
    "file becomes a record or is listed in rejects.jsonl with a reason; manifest.json, written last, describes the "
    "dataset."
)


def metadata() -> dict[str, Any]:
    """Name, description and parameters, in the service's own form."""
    return {"name": TITLE, "description": ABOUT, "parameters": [_parameter(field) for field in template_fields()]}


def template_fields() -> list[dataclasses.Field[Any]]:
    """The options that are parameters, in the order of --help."""
    fields = [field for field in dataclasses.fields(ConvertOptions) if field.metadata["option"].template]
    return sorted(fields, key=lambda field: GROUPS.index(field.metadata["option"].group))


def _parameter(field: dataclasses.Field[Any]) -> dict[str, Any]:
    about: Option = field.metadata["option"]
    required = field.default is dataclasses.MISSING
    parameter: dict[str, Any] = {
        "name": field.name,
        "label": field.name.replace("_", " ").capitalize(),
        "helpText": about.help + (". Separate several with commas" if about.kind.many else ""),
        "isOptional": not required,
        "groupName": about.group.capitalize(),
    }
    if about.choices:
        parameter |= {"paramType": "ENUM", "enumOptions": [{"value": value, "label": value} for value in about.choices]}
    else:
        parameter["paramType"] = about.kind.form
    if not required and field.default not in (None, "", ()):
        parameter["defaultValue"] = about.show or json.dumps(field.default).strip('"')
    if about.kind.pattern and not about.choices:
        parameter["regexes"] = [f"^({about.kind.pattern})$" if required else f"^({about.kind.pattern})?$"]
    return parameter


def spec(image: str) -> dict[str, Any]:
    """The content of the spec file, with one image for launcher and workers.

    Raises:
        UsageError: `image` is not the name of an image in a registry.
    """
    if "/" not in image:
        example = "europe-west4-docker.pkg.dev/PROJECT/REPOSITORY/beam-tfr:TAG"
        raise UsageError(f"is not the name of an image in a registry, such as {example}", option="image", value=image)
    return {
        "image": image,
        "sdkInfo": {"language": "PYTHON"},
        "metadata": metadata(),
        "defaultEnvironment": {"sdkContainerImage": image},
    }


def write_spec(image: str, output: str | None) -> str:
    """Writes the spec file and returns its text.

    Args:
        image: container image for launcher and workers.
        output: file, local or gs://; None to write no file.

    Raises:
        UsageError: the image's name is wrong.
        RunError: the file cannot be written.
    """
    text = json.dumps(spec(image), indent=2) + "\n"
    if output:
        path = storage.check_path(output, option="output")
        try:
            storage.write_bytes(path, text.encode(), scratch=path.rpartition("/")[0])
        except (OSError, storage.AlreadyExistsError) as error:
            said = getattr(error, "strerror", None) or error
            raise RunError(f"cannot be written: {said}", option="output", value=output) from error
    return text


def launcher_arguments(arguments: Sequence[str]) -> list[str]:
    """The launcher's flags as arguments of `beam-tfr convert`; lists are split."""
    many = {field.name for field in template_fields() if field.metadata["option"].kind.many}
    found: list[str] = []
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        if name in many:
            found += [f"--{name}={part}" for part in split_patterns(value)]
        else:
            found.append(argument)
    return found


def split_patterns(text: str) -> list[str]:
    """Splits patterns at commas, but not in braces or brackets."""
    parts = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+", text)
    return [part.strip() for part in parts if part.strip()]
