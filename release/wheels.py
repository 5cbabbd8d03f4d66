"""The release files: ``make dist`` runs it.

python release/wheels.py [-o dist]   builds the source distribution, and a wheel of it for each machine below

One wheel serves CPython 3.11 and all later ones on a machine (the stable ABI). zig compiles the C runtime for glibc
2.28, for both machines from either. Everything is built twice and must be the same bytes. The files are then checked
by auditwheel (manylinux_2_28), abi3audit and twine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
GLIBC = "2.28"
POLICY = f"manylinux_{GLIBC.replace('.', '_')}"
MACHINES = ("x86_64", "aarch64")
# CPython 3.11 exports them, though its stable ABI has them from 3.12 on: src/tilesmith/runtime/binding/stable.h.
EXPORTED_BEFORE = {"PyVectorcall_Call", "PyObject_VectorcallMethod"}
SECONDS = 600  # the longest that one command may take


def run(*words: str | Path, **more: Any) -> str:
    """What a command prints; ``SystemExit`` with its output if it fails."""
    done = subprocess.run(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
        check=False, **more,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}exit status {done.returncode}")
    return done.stdout


def environment() -> dict[str, str]:
    """The date of the last commit stands in all files, so that one commit always gives the same bytes."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TILESMITH_", "CMAKE_", "SKBUILD"))
    }
    if "SOURCE_DATE_EPOCH" not in kept:
        kept["SOURCE_DATE_EPOCH"] = run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    return {**kept, "PATH": f"{BIN}{os.pathsep}{kept['PATH']}", "LC_ALL": "C.UTF-8"}


def build_sdist(folder: Path, env: dict[str, str]) -> Path:
    """Of the last commit: what only lies in the checkout is in no release."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        run("git", "-C", ROOT, "archive", "-o", f"{name}/source.tar", "HEAD")
        with tarfile.open(f"{name}/source.tar") as archive:
            archive.extractall(source, filter="data")
        run(sys.executable, "-m", "build", "-q", "--sdist", "--no-isolation", "-o", folder, source, cwd=name, env=env)
    (made,) = folder.glob("*.tar.gz")
    return made


def compiler(folder: Path, machine: str) -> Path:
    """A compiler command for a machine: zig needs words of its own, and CMake takes the path of one program."""
    path = folder / f"cc-{machine}"
    # NOTE: without -fno-sanitize=all zig builds its UBSan runtime first, 135 s on a cold cache.
    words = f"-m ziglang cc -target {machine}-linux-gnu.{GLIBC} -fno-sanitize=all"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
    path.chmod(0o755)
    return path


def build_wheel(sdist: Path, machine: str, output: Path, env: dict[str, str]) -> Path:
    """From the sources that the source distribution holds, not from the checkout."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = (path for path in folder.iterdir() if path.is_dir())
        made = folder / "made"
        own = {
            **env, "CC": str(compiler(folder, machine)), "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
            "ZIG_GLOBAL_CACHE_DIR": str(Path(tempfile.gettempdir()) / f"tilesmith-zig-{os.getuid()}"),
            "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        }  # fmt: skip
        run(
            sys.executable, "-m", "build", "-q", "--wheel", "--no-isolation", "-o", made, source,
            "-Cinstall.strip=false",  # the system's strip knows this machine's files alone; the linker strips
            "-Ccmake.define.CMAKE_MODULE_LINKER_FLAGS=-s", "-Ccmake.define.TILESMITH_WERROR=ON", cwd=folder, env=own,
        )  # fmt: skip
        (wheel,) = made.glob("*.whl")
        tagged = run(BIN / "wheel", "tags", "--platform-tag", f"{POLICY}_{machine}", wheel, env=env).split()[-1]
        return Path(shutil.copy(made / tagged, output))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_all(folder: Path, env: dict[str, str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    sdist = build_sdist(folder, env)
    return [sdist, *(build_wheel(sdist, machine, folder, env) for machine in MACHINES)]


def check_content(wheel: Path, *, built: bool = True) -> None:
    """It holds every file of the package but the C sources of the binding, and no other; ``built``: the module, too."""
    package = ROOT / "src" / "tilesmith"
    paths = [path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()]
    wanted = {
        path.as_posix() for path in paths
        if "__pycache__" not in path.parts and path.suffix != ".so" and path.parts[1:3] != ("runtime", "binding")
    }  # fmt: skip
    wanted |= {"tilesmith/runtime/_runtime.abi3.so"} if built else set()
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (entries,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        points = archive.read(entries).decode()
    held = {name for name in names if ".dist-info/" not in name}
    if held != wanted or "tilesmith = tilesmith.__main__:main" not in points.replace("=", " = ").replace("  ", " "):
        sys.exit(
            f"{wheel.name} lacks {sorted(wanted - held)}, has {sorted(held - wanted)} beside the package; {points}"
        )


def check_policy(wheel: Path, env: dict[str, str]) -> str:
    """What auditwheel says: the oldest systems that the wheel runs on are those of the policy, or older ones."""
    shown = " ".join(run(BIN / "auditwheel", "show", wheel, env=env).split())
    found = re.search(r'consistent with the following platform tag: "manylinux_(\d+)_(\d+)_(\w+)"', shown)
    if (
        found is None
        or (int(found[1]), int(found[2])) > tuple(map(int, GLIBC.split(".")))
        or found[3] not in wheel.name
    ):
        sys.exit(f"{wheel.name} is not {POLICY}: {shown}")
    return f"auditwheel: manylinux_{found[1]}_{found[2]}_{found[3]} and all later ones"


def check_abi(wheel: Path, env: dict[str, str]) -> str:
    """Nothing of CPython beyond its stable ABI, but for what 3.11 exports before it was stable."""
    words = [str(BIN / "abi3audit"), "--report", str(wheel)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False, env=env)
    (spec,) = json.loads(done.stdout)["specs"].values()
    for module in spec["wheel"]:
        result = module["result"]
        if result["non_abi3_symbols"] or set(result["future_abi3_objects"]) - EXPORTED_BEFORE:
            sys.exit(f"{wheel.name}: beyond the stable ABI of 3.11: {result}")
    return f"abi3audit: {len(spec['wheel'])} module, no symbol beyond the stable ABI"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", help="the folder for the files")
    output = parser.parse_args().output.resolve()
    env = environment()
    with tempfile.TemporaryDirectory() as name:
        first, second = (build_all(Path(name) / which, env) for which in ("first", "second"))
        for one, other in zip(first, second, strict=True):
            if digest(one) != digest(other):
                kept = shutil.copytree(name, tempfile.mkdtemp(prefix="differ-"), dirs_exist_ok=True)
                sys.exit(f"{one.name} differs when it is built again: compare the two in {kept}")
        for wheel in first[1:]:
            check_content(wheel)
            print(f"{wheel.name}: {check_policy(wheel, env)}; {check_abi(wheel, env)}")
        run(BIN / "twine", "check", "--strict", *first, env=env)
        output.mkdir(parents=True, exist_ok=True)
        if run("git", "-C", ROOT, "status", "--porcelain"):
            print("changes that are not committed are in none of the files")
        for old in [*output.glob("tilesmith-*.whl"), *output.glob("tilesmith-*.tar.gz")]:
            old.unlink()
        for path in first:
            shutil.copy2(path, output)
            print(f"{digest(path)}  {output / path.name}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
