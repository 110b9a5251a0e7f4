"""Tables are found, and their first rows say what their columns hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_tfr import inputs, storage
from beam_tfr.schema import UsageError
from beam_tfr.tables.columns import ColumnType, infer_type, parse_type
from beam_tfr.tables.formats import check_columns, is_typed, read_columns, read_rows, split_suffix
from beam_tfr.tables.rows import Tables, folder_of, resolve

SAMPLE_ROWS = 10_000  # the first ones, of the tables in the order of their names
ALL = "*"


def open_tables(
    patterns: Sequence[str],
    *,
    uri: str = "",
    key: str = "",
    label: str = "",
    split: str = "",
    group: str = "",
    label_separator: str = "",
    image_root: str = "",
    features: Mapping[str, str] | None = None,
    reserved: Sequence[str] = (),
    splits: Mapping[str, Fraction] | None = None,
    classes: frozenset[str] | None = None,
) -> Tables:
    """Finds the tables and reads at most `SAMPLE_ROWS` rows of them.

    Args:
        patterns: of the tables, local or gs://.
        uri, key, label, split, group, label_separator, splits, classes: as in `Tables`.
        image_root: folder that the keys are below; by default the one that all paths have in common, or, where some
            are relative, the one of the tables.
        features: column -> type, or an empty text where the first rows say it; `*` stands for all that are left.
        reserved: names that other features of the records have.

    Raises:
        UsageError: no table, a column that is not there, one whose values have no type or that fits none of the first
            rows, or a name that is reserved.
    """
    files = find_tables(patterns)
    folder = _common_folder(files, "--table: tables")
    there = read_columns(files[0], SAMPLE_ROWS)
    roles = [name for name in (uri, key, label, split, group) if name]
    given = dict(features or {})
    known: tuple[str, ...] = ()
    if given.pop(ALL, None) is not None:
        known = tuple(there)
        given |= {name: "" for name in there if name not in given and name not in roles}
    check_columns(files[0], there, [*roles, *given])
    if "" in given:
        raise UsageError(
            f"--table {files[0]}: a column has no name; name those that become features with --feature_columns (pandas "
            "writes its index so: to_csv(index=False) leaves it out)"
        )
    if taken := [name for name in given if name in reserved]:
        raise UsageError(f"--feature_columns {taken[0]}: every record has a feature of this name; rename the column")
    if not uri and not given:
        raise UsageError(f"--table {files[0]}: no column is left to become a feature; give --uri_column or others")
    sample = _sample(files, list(dict.fromkeys([*roles, *given])), known)
    if not next(iter(sample.values())):
        raise UsageError(f"--table {' '.join(patterns)}: there are no rows")
    types = {name: _type(files[0], name, kind, sample[name]) for name, kind in given.items()}
    base = f"{storage.check_path(image_root, option='image_root').rstrip('/')}/" if image_root else ""
    return Tables(
        files=files,
        folder=folder,
        root=base or (_root(folder, sample[uri]) if uri else folder),
        base=base,
        uri=uri,
        key=key,
        label=label,
        split=split,
        group=group,
        label_separator=label_separator,
        multi_label=bool(label_separator) or any(isinstance(cell, list) for cell in sample.get(label, ())),
        types=types,
        known=known,
        splits=splits,
        classes=classes,
    )


def find_tables(patterns: Sequence[str]) -> tuple[str, ...]:
    """The files that match, sorted, each once.

    Raises:
        UsageError: a pattern matches none, or one that is no table; two tables would give the same keys.
    """
    found: set[str] = set()
    for pattern in patterns:
        try:
            found |= {entry.path for entry in inputs.list_images(pattern, ())}
        except UsageError as error:
            message = str(error).removeprefix("--input ").replace("**/*.jpg'", "*.csv'")
            raise UsageError(f"--table {message}") from None
    stems: dict[str, str] = {}
    for path in sorted(found):
        stem = split_suffix(path)[0]
        if stem in stems:
            raise UsageError(f"--table {path}: the same table as {stems[stem]}, by its name; give one of them")
        stems[stem] = path
    return tuple(sorted(found))


def _sample(files: Sequence[str], columns: Sequence[str], known: Sequence[str]) -> dict[str, list[Any]]:
    """Column -> cells of the first rows."""

    def rows() -> Iterator[Sequence[Any]]:
        for path in files:
            for row in read_rows(path, columns, known=known):
                yield row.cells

    cells = list(itertools.islice(rows(), SAMPLE_ROWS))
    return {name: [row[place] for row in cells] for place, name in enumerate(columns)}


def _type(path: str, name: str, kind: str, cells: Sequence[Any]) -> ColumnType:
    try:
        of = parse_type(kind) if kind else infer_type(cells, typed=is_typed(path))
    except ValueError as error:
        if kind:
            raise UsageError(f"--feature_columns {name}:{kind}: {error}") from None
        raise UsageError(
            f"--table {path}: column {name!r} {error} in its first rows, which makes no feature; give its type, such "
            f"as --feature_columns {name}:bytes, or name the columns that become features without it"
        ) from None
    if reasons := _misfits(of, cells):
        raise UsageError(
            f"--table {path}: column {name!r}, as {of}, fits none of the first {len(reasons)} rows, which would all be "
            f"rejects (row 1: {reasons[0]}). Give another type, --feature_columns {name}:TYPE, or name the columns "
            "that become features without it"
        )
    return of


def _misfits(of: ColumnType, cells: Sequence[Any]) -> list[str]:
    """Why none of the cells fits a type; empty when one does."""
    reasons = []
    for cell in cells:
        try:
            of.values(cell)
            return []
        except ValueError as error:
            reasons.append(str(error))
    return reasons


def _root(folder: str, uris: Sequence[Any]) -> str:
    """The folder that the first rows have in common; that of the tables where a path is relative.

    Is it not that of all rows, then one will not be below it, which is an error: so it never depends on how many rows
    are looked at.
    """
    paths = []
    for uri in uris:
        try:
            path = resolve(uri, folder)
        except ValueError:
            continue
        if path != uri and not (isinstance(uri, str) and uri.startswith("/")):
            return folder
        paths.append(path)
    return _common_folder(paths, "--table: the files that its rows name") if paths else folder


def _common_folder(paths: Sequence[str], what: str) -> str:
    return inputs.common_folder([folder_of(path)[:-1] for path in paths], what)
