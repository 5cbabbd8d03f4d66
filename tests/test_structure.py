"""The way through the house: imports go one way, files stay short, and importing the package loads nothing heavy."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tilesmith.solvers.generation import FAMILIES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tilesmith"
# A file imports only from its own entry or from entries above it.
ORDER = [
    "errors", "spelling", "env", "log", "loading", "reading", "reading_toml", "problems", "targets", "plan", "codegen",
    "solvers", "toolchain", "runtime", "measure", "db", "tune", "dispatch", "fleet", "compare", "ready", "lab",
    "doctor", "report", "package", "torch_ops", "cli",
]  # fmt: skip
TORCH_FOLDERS = {
    "solvers/external",
    "compare",
    "compare/cutlass",
    "compare/tvm",
    "torch_ops",
    "torch_ops/compile",
    "torch_ops/modules",
}
LONGEST = 800
MOST_FILES = 25  # of a folder


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def area(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> list[tuple[int, str]]:
    """Every module that a file imports, inside functions too, with its line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            found.append((node.lineno, node.module))
            if node.module == "tilesmith":
                found += [(node.lineno, f"tilesmith.{alias.name}") for alias in node.names]
    return found


def test_families_of_kernels_do_not_import_each_other():
    """The generator's digest of one leaves out the files of the other."""
    for path in modules():
        parts = path.relative_to(PACKAGE).parts
        if len(parts) > 2 and parts[0] in ("codegen", "solvers") and parts[1] in FAMILIES.values():
            others = {f"tilesmith.{area}.{own}" for area in ("codegen", "solvers") for own in FAMILIES.values()}
            for line, name in imported(path):
                other = ".".join(name.split(".")[:3])
                assert other not in others or other.endswith(f".{parts[1]}"), f"{path}:{line}: imports {name}"


def test_kernels_in_c_share_what_is_common_alone():
    """A family reads its own folder, what all share, and the reference behind every fast kernel."""
    rooms = PACKAGE / "solvers" / "c"
    for path in modules():
        if rooms in path.parents and path.parent != rooms:
            allowed = {path.relative_to(rooms).parts[0], "common", "reference"}
            for line, name in imported(path):
                if name.startswith("tilesmith.solvers.c."):
                    assert name.split(".")[3] in allowed, f"{path}:{line}: imports {name}"


def test_other_libraries_kernels_are_known_to_the_table():
    """Only files whose subject is PyTorch reach their folder."""
    allowed = {PACKAGE / "solvers/table.py", PACKAGE / "dispatch/empty.py"}
    for path in modules():
        if path not in allowed and str(path.parent.relative_to(PACKAGE)) not in TORCH_FOLDERS:
            for line, name in imported(path):
                assert not name.startswith("tilesmith.solvers.external"), f"{path}:{line}: imports {name}"


def test_every_folder_has_its_place():
    assert {area(path) for path in modules()} - {"__init__", "__main__"} <= set(ORDER)


def test_imports_point_upward():
    for path in modules():
        if area(path) in ("__init__", "__main__"):
            continue
        own = ORDER.index(area(path))
        for line, name in imported(path):
            parts = name.split(".")
            if parts[0] == "tilesmith" and len(parts) > 1 and parts[1] in ORDER:
                assert ORDER.index(parts[1]) <= own, f"{path}:{line}: {area(path)}/ may not import {parts[1]}/"


def module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those of ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            yield from executed(node)


def file_imports() -> dict[str, set[str]]:
    """For every file the files that it imports, inside functions too."""
    paths = {module(path): path for path in modules()}
    found: dict[str, set[str]] = {}
    for name, path in paths.items():
        seen = set()
        for node in executed(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                seen |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                below = {f"{node.module}.{alias.name}" for alias in node.names}
                seen |= {each if each in paths else node.module for each in below}
        found[name] = (seen & paths.keys()) - {name}
    return found


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files of which each reaches each other."""
    reached = {name: {name} for name in imports}
    changed = True
    while changed:
        changed = False
        for name, direct in imports.items():
            before = len(reached[name])
            reached[name] |= set().union(*(reached[each] for each in direct))
            changed = changed or len(reached[name]) > before
    groups = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in imports}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def test_no_circle_among_files():
    """Imports inside functions count. Only signatures may reach their own key, canonical form and samples."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    imports = file_imports()
    own = {f"tilesmith.problems.{name}" for name in ("canonical", "func_name", "key_text", "keys", "samples")}
    for signature in ("tilesmith.problems.base", "tilesmith.problems.conv", "tilesmith.problems.gemm"):
        imports[signature] -= own
    # The package names the homes of its public names, and imports them when they are asked for.
    imports["tilesmith"] -= {"tilesmith.torch_ops.calls"}
    assert circles(imports) == []


def test_no_folder_is_crowded():
    folders = Counter(str(path.relative_to(PACKAGE).parent) for path in modules())
    assert {name: count for name, count in folders.items() if count > MOST_FILES} == {}


def test_torch_is_imported_in_one_place():
    # get_sample_args(device=...) hands out torch tensors when a user asks for them: the one lazy import elsewhere.
    allowed = {"problems/samples.py"}
    for path in modules():
        name = str(path.relative_to(PACKAGE))
        if str(path.relative_to(PACKAGE).parent) not in TORCH_FOLDERS and name not in allowed:
            assert not [each for _, each in imported(path) if each.split(".")[0] == "torch"], name


def test_files_are_short():
    sizes = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in modules()}
    assert {name: n for name, n in sizes.items() if n > LONGEST} == {}
    assert sorted(sizes.values())[len(sizes) * 9 // 10] <= 420
    texts = [path for end in ("cu", "cuh", "c", "h") for path in PACKAGE.rglob(f"*.{end}")]
    assert len(texts) > 50
    assert [str(path.relative_to(PACKAGE)) for path in texts if len(path.read_text().splitlines()) > LONGEST] == []


def test_import_is_light():
    code = (
        "import sys, time, json; t = time.process_time(); import tilesmith; dt = time.process_time() - t;"
        "alone = sorted(sys.modules); tilesmith.get_launchable;"
        "print(json.dumps({'seconds': dt, 'modules': alone, 'later': sorted(sys.modules)}))"
    )
    runs = [json.loads(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(3)]
    heavy = {"torch", "cuda", "cupy", "ray", "dask", "sqlite3", "rich"}
    assert heavy.isdisjoint(name.split(".")[0] for name in runs[0]["modules"])
    assert {"torch", "decimal", "fractions", "sqlite3", "rich"}.isdisjoint(runs[0]["later"])
    assert min(run["seconds"] for run in runs) < 0.2
