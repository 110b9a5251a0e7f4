"""Wheels for workers that have Beam alone: this package, from its own files, and the codecs, of the versions here.

Nothing is built and nothing is fetched where this machine is like a worker (Linux on x86-64): the wheel of an installed
package is its files, packed again. Elsewhere pip downloads the codecs. The same files give the same bytes, so that what
was uploaded once can be found again.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import beam_tfr
from beam_tfr.schema import UsageError

PACKAGE = Path(beam_tfr.__file__).parent
NAME = "beam_tfr"
WORKER_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
PACKERS = 4  # threads; each holds the files of one package
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of all files in a wheel
_NOT_INSTALLED = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")  # what pip adds to a wheel's files


def make_wheels(folder: Path, codecs: Iterable[str]) -> list[Path]:
    """Wheels to install on a worker, in this order, each after what it requires.

    Args:
        folder: where they are put.
        codecs: names of installed packages.

    Raises:
        UsageError: a codec's wheel for workers cannot be had.
    """
    names = list(codecs)
    with ThreadPoolExecutor(PACKERS) as pool:  # zlib takes the time, and lets other threads run
        packed = list(pool.map(lambda name: repack(importlib.metadata.distribution(name), folder), names))
    missing = [name for name, wheel in zip(names, packed, strict=True) if wheel is None]
    downloaded = download(missing, folder) if missing else []
    return [*downloaded, *(wheel for wheel in packed if wheel), own_wheel(folder)]


def own_wheel(folder: Path) -> Path:
    """This package without its photos, requiring only what a worker needs."""
    files = {
        f"{NAME}/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in (".py", ".json", ".txt", ".typed") and path.is_file() and "sample" not in path.parts
    }
    requires = "".join(f"Requires-Dist: {line}\n" for line in (PACKAGE / "requirements.txt").read_text().splitlines())
    info = f"{NAME}-{beam_tfr.__version__}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {beam_tfr.__version__}\n{requires}".encode()
    )
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: beam_tfr\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return _write(folder / f"{NAME}-{beam_tfr.__version__}-py3-none-any.whl", info, files)


def repack(found: importlib.metadata.Distribution, folder: Path) -> Path | None:
    """The wheel that a package was installed from; None where that one does not run on workers, or nothing tells."""
    tags = re.findall(r"^Tag: (\S+)-(\S+)-(\S+)", found.read_text("WHEEL") or "", re.MULTILINE)
    like_worker = platform.system() == "Linux" and platform.machine() == "x86_64"
    fits = [tag for tag in tags if tag[2] == "any" or (like_worker and re.fullmatch(r"manylinux\w*_x86_64", tag[2]))]
    if not fits or not found.files:
        return None
    files = {
        path.as_posix(): Path(str(path.locate())).read_bytes()
        for path in found.files
        if ".." not in path.parts and path.name not in _NOT_INSTALLED and path.suffix != ".pyc"
    }
    info = next(name for name in files if name.endswith(".dist-info/WHEEL")).partition("/")[0]
    compressed = "-".join(".".join(dict.fromkeys(part)) for part in zip(*fits, strict=True))
    return _write(folder / f"{info.removesuffix('.dist-info')}-{compressed}.whl", info, files)


def _write(path: Path, info: str, files: Mapping[str, bytes]) -> Path:
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
        for name, data in sorted(files.items())
    )
    everything = {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in sorted(everything.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def download(names: Iterable[str], folder: Path) -> list[Path]:
    """Wheels of installed packages, of the versions here, for workers, from the index that pip uses.

    Raises:
        UsageError: pip cannot have them.
    """
    python = f"{sys.version_info.major}{sys.version_info.minor}"
    target = folder / "downloaded"
    pins = [f"{name}=={importlib.metadata.version(name)}" for name in names]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(target),
    ]
    command += [f"--platform={name}" for name in WORKER_PLATFORMS]
    command += ["--implementation=cp", f"--python-version={python}", f"--abi=cp{python}", "--abi=abi3", "--abi=none"]
    run = subprocess.run([*command, *pins], capture_output=True, text=True, check=False)  # noqa: S603
    if run.returncode:
        said = (run.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UsageError(
            f"the wheels of {', '.join(pins)} that workers need cannot be had from pip's index ({said}); give "
            "--sdk_container_image=IMAGE with an image that has beam_tfr, or submit from Linux on x86-64, where the "
            "installed ones are taken"
        )
    return sorted(target.iterdir())
