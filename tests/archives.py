"""Archives of files, for tests."""

from __future__ import annotations

import io
import tarfile

Files = dict[str, bytes]


def tarred(files: Files, form: int = tarfile.PAX_FORMAT, *more: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name.rstrip("+"))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in more:
            archive.addfile(member)
    return file.getvalue()
