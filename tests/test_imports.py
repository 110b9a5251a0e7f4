"""Who imports whom: what stays light, and the borders between the modules."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import beam_tfr

PACKAGE = Path(beam_tfr.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
HEAVY = ("apache_beam", "tensorflow", "keras")


def imported_after(program: str, *arguments: str) -> set[str]:
    """Names in sys.modules after a program in a fresh interpreter."""
    listed = (
        "import atexit, sys; atexit.register(lambda: print('MODULES', *sys.modules, "
        "file=sys.stderr))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", listed + program, *arguments],
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stderr.rpartition("MODULES ")[2].split())


LIGHT = (*HEAVY, "numpy", "cv2", "google.cloud.storage", "google.protobuf", "PIL", "simplejpeg")
# Runs commands of which each ends as `--help` does.
COMMANDS_THAT_EXIT = """
from beam_tfr.cli import main
for command in {commands}:
    try:
        main(command)
    except SystemExit as end:
        assert end.code == 0
"""
HELP = [
    ["--help"],
    ["convert", "--help"],
    ["verify", "--help"],
    ["repair", "--help"],
    ["bench", "--help"],
    ["inspect", "--help"],
    ["diff", "--help"],
    ["plan", "--help"],
    ["--version"],
    [],
]


@pytest.mark.parametrize(
    ("program", "never"),
    [
        (
            "import beam_tfr, beam_tfr.cli; beam_tfr.convert, beam_tfr.verify, beam_tfr.UsageError",
            LIGHT,
        ),
        (COMMANDS_THAT_EXIT.format(commands=HELP), LIGHT),
        (
            "import beam_tfr.schema, beam_tfr.storage, beam_tfr.options, "
            "beam_tfr.records.examples\n"
            "import beam_tfr.dataset.manifest, beam_tfr.inputs.labels, beam_tfr.images, "
            "beam_tfr.planning\n"
            "import beam_tfr.output.shards, beam_tfr.output.claim, beam_tfr.output.publish, "
            "beam_tfr.verification\n"
            "import beam_tfr.inspection, beam_tfr.comparison\n"
            "import beam_tfr.reader, beam_tfr.torch",
            HEAVY,
        ),
        ("from beam_tfr.reader import load, load_records", ("apache_beam",)),
    ],
    ids=["package", "help", "no Beam, no TensorFlow", "no Beam"],
)
def test_imports_are_light(program: str, never: tuple[str, ...]) -> None:
    assert not imported_after(program) & set(never)


@pytest.mark.slow
def test_a_whole_conversion_and_its_check_never_import_tensorflow(
    photos: Path, tmp_path: Path
) -> None:
    program = (
        "import sys; from beam_tfr.cli import main\n"
        "assert main(['convert', '--input', sys.argv[1], '--output', sys.argv[2], '--layout', "
        "'*']) == 0\n"
        "assert main(['verify', sys.argv[2]]) == 0\n"
    )
    found = imported_after(program, f"{photos}/**/*.jpg", str(tmp_path / "out"))
    assert "apache_beam" in found
    assert not found & {"tensorflow", "keras"}


@functools.cache
def imports_of(path: Path) -> set[str]:
    """Full names of all that a module imports, anywhere in it but under `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            node.body = [ast.Pass()]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def ours(name: str) -> set[str]:
    """The modules of this package that a module imports."""
    found = set()
    for imported in imports_of(MODULES[name]):
        parts = imported.split(".")
        if parts[0] == "beam_tfr" and len(parts) > 1:
            found |= {parts[1]} if parts[1] in MODULES else set()
    return found - {name.partition(".")[0]}


def heavy(name: str) -> set[str]:
    return {imported.partition(".")[0] for imported in imports_of(MODULES[name])} & set(HEAVY)


def test_only_some_modules_import_beam_or_tensorflow() -> None:
    found = {name: heavy(name) for name in MODULES}
    users = {name.partition(".")[0] for name in found if "apache_beam" in found[name]}
    assert users == {"transforms", "pipeline", "launch", "dataflow", "engine", "worker"}
    users = {name.partition(".")[0] for name in found if found[name] & {"tensorflow", "keras"}}
    assert users <= {"reader", "commands", "speed", "features"}


# module -> what of ours it may import; the drawing of docs/architecture.md
ALLOWED = {
    "version": set(),
    "console": set(),
    "schema": {"console"},
    "features": {"schema"},
    "guarded": {"schema"},
    "layouts": {"console", "schema"},
    "storage": {"schema"},
    "engine": {"console", "guarded", "schema", "storage"},
    "inputs": {"guarded", "layouts", "records", "schema", "storage"},
    "planning": {"layouts", "schema"},
    "records": {"features", "schema", "storage"},
    "options": {"console", "features", "layouts", "schema", "storage"},
    "tables": {
        "console",
        "dataset",
        "features",
        "inputs",
        "layouts",
        "options",
        "records",
        "schema",
        "storage",
    },
    "dataset": {
        "console",
        "features",
        "layouts",
        "options",
        "records",
        "schema",
        "storage",
        "version",
    },
    "images": {"features", "guarded", "options", "records", "schema"},
    "dataflow": {"engine", "images", "options", "schema", "storage", "version"},
    "order": {"dataset", "schema"},
    "sources": {
        "console",
        "dataset",
        "features",
        "inputs",
        "layouts",
        "options",
        "planning",
        "schema",
        "storage",
        "tables",
    },
    "copies": {"console", "dataset", "records", "schema", "storage"},
    "comparison": {"console", "dataset", "features", "records", "schema", "storage"},
    "exports": {"dataset", "engine", "features", "records", "schema", "storage"},
    "verification": {
        "console",
        "copies",
        "dataset",
        "features",
        "images",
        "inputs",
        "options",
        "records",
        "schema",
        "storage",
        "tables",
    },
    "output": {
        "console",
        "copies",
        "dataset",
        "features",
        "images",
        "inputs",
        "layouts",
        "planning",
        "records",
        "schema",
        "storage",
        "version",
    },
    "reader": {
        "dataset",
        "features",
        "images",
        "inputs",
        "options",
        "order",
        "records",
        "schema",
        "storage",
    },
    "torch": {"dataset", "order", "records", "schema"},
}
COMMANDS = {"api", "cli", "commands", "inspection", "comparison", "preview", "reporting", "speed"}


def test_modules_import_only_those_below_them() -> None:
    for name in MODULES:
        allowed = ALLOWED.get(name.partition(".")[0])
        assert allowed is None or ours(name) <= allowed, name


def test_no_stage_imports_a_command_and_no_ring_is_closed() -> None:
    tops = {name.partition(".")[0] for name in MODULES} - {"__init__", "__main__", "beam_tfr"}
    graph = {
        name: set().union(*(ours(m) for m in MODULES if m.partition(".")[0] == name)) - {name}
        for name in tops
    }
    for name, imported in graph.items():
        if name not in COMMANDS:
            assert not imported & COMMANDS, name
    while graph:
        free = {name for name, imported in graph.items() if not imported & graph.keys()}
        assert free, f"a ring of imports: {graph}"
        graph = {name: imported for name, imported in graph.items() if name not in free}


def test_the_architecture_page_lists_every_module_above_what_it_imports() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = page.partition("## Imports")[2].partition("\n## ")[0].splitlines()
    rows = [line[4:55].split() for line in lines if line.startswith("    ")]
    height = {name: -row for row, names in enumerate(rows) for name in names}
    tops = {name.partition(".")[0] for name in MODULES} - {"", "__init__", "__main__", "beam_tfr"}
    assert height.keys() == tops
    for name in MODULES:
        for imported in ours(name) if name.partition(".")[0] in tops else ():
            assert height[imported] < height[name.partition(".")[0]], f"{name} imports {imported}"


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_nothing_imports_from_a_test_module_and_no_benchmark_from_tests(folder: str) -> None:
    for path in (PACKAGE.parent / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            assert not any(module.startswith("tests.test_") for module in modules), path
            if folder == "benchmarks":
                assert node.module.partition(".")[0] != "tests", path
