"""Installs each wheel of a folder for each Python that is here, and runs ``smoke.py``: ``make dist`` runs it.

python release/check.py dist                  the Pythons of PATH and pyenv
python release/check.py dist --debian         Debian's Python 3.14, and 3.11 for aarch64 under qemu-user, as well

Debian's Pythons are unpacked into a temporary folder, with their own C library: nothing is installed on the system.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from wheels import BIN, run

HERE = Path(__file__).parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# What they need to start: the interpreter, its library, and the C libraries of its modules.
PACKAGES = "python{v}-minimal libpython{v}-minimal libpython{v}-stdlib libc6 zlib1g libexpat1 libffi8 libgcc-s1 " \
    "libstdc++6 libsqlite3-0 libssl3 libbz2-1.0 liblzma5 libuuid1 libzstd1 libcrypt1"  # fmt: skip
PROBLEMS = """\
gemm -m 16 -n 8 -k 24 -F 1
conv -n 1 -c 4 -H 9 -W 9 -k 8 -y 3 -x 3 -F 1
"""
LEVELS = {"x86_64": "x86_64-v2:1", "aarch64": "aarch64:1"}


@dataclass(frozen=True)
class Interpreter:
    """``command`` starts it; ``environment`` is what it needs beside that."""

    version: str
    machine: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def local() -> list[Interpreter]:
    """Of each version the first one that starts."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = []
    for version in VERSIONS:
        places = [*sorted(root.glob(f"{version}.*/bin/python3")), shutil.which(f"python{version}")]
        for place in filter(None, places):
            done = subprocess.run([str(place), "-c", "import venv"], capture_output=True, timeout=60, check=False)
            if done.returncode == 0:
                found.append(Interpreter(version, os.uname().machine, (str(place),)))
                break
    return found


def debian(folder: Path, suite: str, architecture: str, version: str) -> Path:
    """The root of Debian's Python, with an apt of its own."""
    root, state = folder / "root", folder / "apt"
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (state / "sources").write_text(f"deb [signed-by={key}] http://deb.debian.org/debian {suite} main\n")
    (state / "conf").write_text(
        f'Dir::State "{state}"; Dir::State::status "{state}/status"; Dir::Cache "{state}";\n'
        f'Dir::Etc::sourcelist "{state}/sources"; Dir::Etc::sourceparts "-";\n'
        f'APT::Architecture "{architecture}"; APT::Architectures "{architecture}"; APT::Sandbox::User "root";\n'
    )
    env = {**os.environ, "APT_CONFIG": str(state / "conf")}
    run("apt-get", "-qq", "update", env=env)
    listed = run("apt-cache", "pkgnames", env=env).split()
    wanted = [name for name in PACKAGES.format(v=version).split() if name in listed or not name.startswith("libssl")]
    run("apt-get", "-qq", "download", *wanted, cwd=state / "archives", env=env)
    root.mkdir()
    for path in sorted((state / "archives").glob("*.deb")):
        run("dpkg", "-x", path, root)
    return root


def foreign(folder: Path) -> list[Interpreter]:
    """Debian's: the newest one of x86-64 with its own loader, and one of aarch64 under an emulator."""
    found = []
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if os.uname().machine == "x86_64":
        root = debian(folder / "amd64", "sid", "amd64", "3.14")
        libraries = f"{root}/usr/lib/x86_64-linux-gnu:{root}/lib/x86_64-linux-gnu"
        loader = next(root.glob("**/ld-linux-x86-64.so.2"))
        words = (str(loader), "--library-path", libraries, f"{root}/usr/bin/python3.14")
        found.append(Interpreter("3.14", "x86_64", words, (("PYTHONHOME", f"{root}/usr"),)))
    if emulator is None:
        print("no qemu-user: the aarch64 wheel is not run (apt install qemu-user-static)")
    else:
        root = debian(folder / "arm64", "bookworm", "arm64", "3.11")
        words = (emulator, "-L", str(root), f"{root}/usr/bin/python3.11")
        found.append(Interpreter("3.11", "aarch64", words, (("PYTHONHOME", f"{root}/usr"),)))
    return found


def check(wheel: Path, python: Interpreter, packages: Path, folder: Path) -> None:
    """In a folder with nothing but that Python: a virtual environment, or a folder for PYTHONPATH."""
    folder.mkdir()
    env = {"HOME": str(folder), "LC_ALL": "C.UTF-8", **dict(python.environment)}
    if python.environment:
        platforms = [f"--platform=manylinux{v}_{python.machine}" for v in ("_2_17", "2014", "_2_27", "_2_28")]
        run(
            sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--only-binary=:all:",
            "--python-version", python.version, "--implementation=cp", *platforms, "--target", folder / "site", wheel,
        )  # fmt: skip
        command, env["PYTHONPATH"] = python.command, str(folder / "site")
    else:
        run(*python.command, "-m", "venv", folder / "venv")
        command = (str(folder / "venv/bin/python"),)
        run(*command, "-m", "pip", "-q", "--disable-pip-version-check", "install", wheel)
        run(folder / "venv/bin/tilesmith", "--version", env=env, cwd=folder)
    print(run(*command, HERE / "smoke.py", packages, *command, env=env, cwd=folder).strip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds the wheels")
    parser.add_argument("--debian", action="store_true", help="Debian's Pythons as well")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pythons = [*local(), *(foreign(folder) if given.debian else [])]
        (folder / "list.txt").write_text(PROBLEMS)
        targets = [word for machine in {each.machine for each in pythons} for word in ("--target", LEVELS[machine])]
        env = {**os.environ, "TILESMITH_CACHE_DIR": f"{name}/cache", "TILESMITH_DB_PATH": f"{name}/tilesmith.db"}
        run(
            sys.executable, "-m", "tilesmith", "package", "build", folder / "list.txt", *targets, "-o",
            folder / "packages", env={**env, "PATH": f"{BIN}{os.pathsep}{env['PATH']}"},
        )  # fmt: skip
        count = 0
        for number, python in enumerate(pythons):
            for wheel in sorted(given.folder.resolve().glob(f"tilesmith-*_{python.machine}.whl")):
                check(wheel, python, folder / "packages", folder / f"python{number}")
                count += 1
        if not count:
            sys.exit(f"no wheel of {given.folder} was run: no Python of {', '.join(VERSIONS)} is here")


if __name__ == "__main__":
    main()
