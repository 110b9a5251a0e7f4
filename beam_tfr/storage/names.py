"""Finds out which file names a store accepts."""

import os
import re
import unicodedata
import uuid
from typing import NamedTuple

# Names that Windows and its file systems (FAT, exFAT, NTFS) refuse.
_MARKS = '\\:*?"<>|'
REFUSED_BY_WINDOWS = re.compile(rf"[\0-\x1f{re.escape(_MARKS)}]|[. ](?=/|\Z)")
_LINE_BREAK = re.compile(r"[\r\n]")
_NOTHING = re.compile(r"(?!)")
_LETTER = "\u00e9"  # é, which has two spellings in Unicode, and a capital letter
_SURROGATE = re.compile("[\ud800-\udfff]")


class NameRules(NamedTuple):
    """The rules for file names in a store.

    Attributes:
        name_bytes: maximum length of the name of a file or folder.
        path_bytes: maximum length of a path; on gs://, of the name of an object.
        has_folders: whether a file and a folder cannot have the same path.
        refused: matches text that no path may contain.
        takes_any_bytes: whether names need not be UTF-8.
        ignores_case: whether names that differ only in case are the same.
        ignores_form: whether names that differ only in their Unicode normal form are the same.
    """

    name_bytes: int
    path_bytes: int
    has_folders: bool = True
    refused: re.Pattern[str] = _NOTHING
    takes_any_bytes: bool = True
    ignores_case: bool = False
    ignores_form: bool = False

    def unify(self, path: str) -> str:
        """Maps paths that are the same in this store to the same string."""
        if self.ignores_form:
            path = unicodedata.normalize("NFC", path)
        return path.casefold() if self.ignores_case else path

    def describe_unifying(self) -> str:
        """Returns, for a message, which differences between names this store ignores, if any."""
        ignored = []
        if self.ignores_case:
            ignored.append("case")
        if self.ignores_form:
            ignored.append("Unicode form")
        return (
            f"; names that differ only by {' or '.join(ignored)} are the same there"
            if ignored
            else ""
        )

    def find_problem(self, folder: str, name: str) -> str:
        """Returns the reason why a file in a folder cannot have this name, or "" if it can."""
        path = f"{folder.rstrip('/')}/{name}"
        encoded = os.fsencode(path)
        if len(encoded) > self.path_bytes:
            return f"the path has {len(encoded):,} bytes, but at most {self.path_bytes:,} fit"
        longest = max(map(len, os.fsencode(name).split(b"/")))
        if longest > self.name_bytes:
            return f"a name has {longest:,} bytes, but at most {self.name_bytes:,} fit there"
        refused = self.refused.search(name)
        if refused:
            return f"names cannot contain {refused[0]!r} there"
        if not self.takes_any_bytes and _SURROGATE.search(name):
            return "names must be UTF-8 there"
        return ""


def rules_of_gcs(bucket: str) -> NameRules:
    """Returns the rules of object names: https://cloud.google.com/storage/docs/objects#naming."""
    prefix = len(f"gs://{bucket}/".encode())
    return NameRules(
        1024, 1024 + prefix, has_folders=False, refused=_LINE_BREAK, takes_any_bytes=False
    )


def try_names(folder: str) -> NameRules:
    """Finds out which names a folder on disk accepts, by creating and removing empty files."""
    stem = f".tmp-{uuid.uuid4().hex}a"
    path = os.path.join(folder, stem + _LETTER)
    with open(path, "xb"):
        pass
    try:
        ignores_case = os.path.lexists(os.path.join(folder, stem.upper() + _LETTER))
        other_form = unicodedata.normalize("NFD", _LETTER)
        ignores_form = os.path.lexists(os.path.join(folder, stem + other_form))
    finally:
        os.remove(path)
    takes_marks = _takes_name(os.path.join(folder, f"{stem}{_MARKS}\n"))
    return NameRules(
        name_bytes=os.pathconf(folder, "PC_NAME_MAX"),
        path_bytes=os.pathconf(folder, "PC_PATH_MAX") - 1,
        refused=_NOTHING if takes_marks else REFUSED_BY_WINDOWS,
        takes_any_bytes=_takes_name(os.path.join(folder, f"{stem}\udcff")),
        ignores_case=ignores_case,
        ignores_form=ignores_form,
    )


def _takes_name(path: str) -> bool:
    """Whether a file with this name can be created; removes it again."""
    try:
        with open(path, "xb"):
            pass
    except OSError:
        return False
    os.remove(path)
    return True
