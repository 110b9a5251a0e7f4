"""The format `webdataset`: a tar for each shard (https://github.com/webdataset/webdataset)."""

import io
import json
import tarfile

from beam_tfr.schema.features import LABEL
from examples.export.shard import Shard, create


def write_tar(shard: Shard, path: str) -> None:
    """Writes a shard as a tar of NUMBER.jpg, .json, .cls and .mask.png."""
    with (
        create(shard.output, path) as file,
        tarfile.open(fileobj=file, mode="w|", format=tarfile.USTAR_FORMAT) as tar,  # type: ignore[call-overload]
    ):
        for number, sample in enumerate(shard.samples()):
            members = {sample.extension: sample.image, "json": json.dumps(sample.about).encode()}
            labels = sample.values.get(LABEL, ())
            if len(labels) == 1:
                members["cls"] = str(labels[0]).encode()
            if sample.mask is not None:
                members["mask.png"] = sample.mask
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{number:08d}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
