"""Prints the spec file of the Flex Template for an image.

`python3 templates/spec.py IMAGE` needs no package.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def spec(image: str) -> dict[str, Any]:
    """The content of the spec file, with one image for launcher and workers."""
    return {
        "image": image,
        "sdkInfo": {"language": "PYTHON"},
        "metadata": json.loads(Path(__file__).with_name("metadata.json").read_text()),
        "defaultEnvironment": {"sdkContainerImage": image},
    }


if __name__ == "__main__":
    if len(sys.argv) != 2 or "/" not in sys.argv[1]:
        sys.exit(
            "give an image in a registry, such as "
            "europe-west4-docker.pkg.dev/PROJECT/REPOSITORY/beam-tfr:TAG"
        )
    print(json.dumps(spec(sys.argv[1]), indent=2))
