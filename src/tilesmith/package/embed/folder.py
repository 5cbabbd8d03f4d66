"""The folder of a library: written file by file, each in one step, and removed again without touching other files.

A record in the folder lists what was written. It is written before the first new file and again after the last, so
that a run that is interrupted is continued, or cleaned, by the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilesmith.errors import FileFormatError
from tilesmith.toolchain.files import read, replace

RECORD: Final = ".tilesmith-embed.json"
_MACHINES = ("x86_64", "aarch64", "other")  # folders of make, below build/
_FORM = "tilesmith embed 1"
_MOST = 1 << 26


@dataclass(frozen=True)
class _Held:
    """The output of earlier runs: files by their paths, and the libraries' names."""

    files: frozenset[str]
    names: frozenset[str]


def write_project(folder: Path, name: str, files: Mapping[str, str]) -> int:
    """Make ``folder`` hold exactly these files of a project, beside what was built there; returns how many changed.

    A file with the right bytes is not touched. Files of an earlier project in the folder that are not in ``files`` are
    removed.

    Raises:
        FileFormatError: The folder holds files that no earlier run wrote, or it cannot be written.
    """
    wanted = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = _held(folder)
        if held is None and (other := _first_entry(folder)):
            raise FileFormatError(
                f"{folder} holds {other}, which no earlier run wrote: name a folder that is empty or does not exist"
            )
        changed = [path for path, digest in wanted.items() if _digest(folder / path) != digest]
        held = held or _Held(frozenset(), frozenset())
        foreign = [path for path in changed if path not in held.files and os.path.lexists(folder / path)]
        if foreign:
            raise FileFormatError(f"{folder / foreign[0]} was written by no earlier run: move it away")
        stale = sorted(held.files - wanted.keys())
        names = held.names | {name}
        if held != _Held(frozenset(wanted), names):
            _write_record(folder, _Held(held.files | wanted.keys(), names))
        for path in changed:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            replace(folder / path, files[path].encode())
        for path in stale:
            _remove(folder, path)
        if stale:
            _write_record(folder, _Held(frozenset(wanted), names))
    except OSError as error:
        raise FileFormatError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return len(changed) + len(stale)


def clean_project(folder: Path) -> int:
    """Remove all that earlier runs wrote into ``folder`` and built there; returns the count of written files.

    The folder itself goes if nothing else is in it. Raises ``FileFormatError`` if no run wrote there.
    """
    try:
        held = _held(folder)
        if held is None:
            raise FileFormatError(f"{folder} has no {RECORD}: no run wrote there, and nothing is removed")
        for machine in _MACHINES:
            shutil.rmtree(folder / "build" / machine, ignore_errors=True)
        for path in _built(folder, held.names):
            _remove(folder, str(path.relative_to(folder)))
        for path_text in sorted(held.files):
            _remove(folder, path_text)
        _remove(folder, RECORD)
        with contextlib.suppress(OSError):
            folder.rmdir()
    except OSError as error:
        raise FileFormatError(f"{folder}: cannot be removed: {error.strerror or error}") from None
    return len(held.files)


def _built(folder: Path, names: frozenset[str]) -> list[Path]:
    """The libraries and programs that make made."""
    made = [rf"{name}(\.a|\.so(\.[0-9.]+)?|_sample|_self_test)(\.part)?" for name in names]
    ours = re.compile("|".join(made))
    places = [path for name in ("lib", "bin") for path in (folder / name).rglob("*")]
    return [path for path in places if ours.fullmatch(path.name) and (path.is_symlink() or path.is_file())]


def _held(folder: Path) -> _Held | None:
    """The files that earlier runs wrote; None if there is no record."""
    try:
        found = json.loads(read(folder / RECORD, _MOST))
        paths, names = (found["files"], found["names"]) if found["form"] == _FORM else (None, [])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        paths, names = None, []
    if not (isinstance(paths, list) and isinstance(names, list)) or not all(map(_is_inside, paths)):
        paths = None
    if paths is None or not all(isinstance(each, str) and each.isidentifier() for each in names):
        raise FileFormatError(f"{folder / RECORD} is damaged: remove the folder by hand")
    return _Held(frozenset(paths), frozenset(names))


def _is_inside(path: object) -> bool:
    return isinstance(path, str) and not os.path.isabs(path) and ".." not in path.split("/") and bool(path)


def _write_record(folder: Path, held: _Held) -> None:
    text = json.dumps({"form": _FORM, "names": sorted(held.names), "files": sorted(held.files)}, indent=0)
    replace(folder / RECORD, text.encode() + b"\n", durable=True)


def _first_entry(folder: Path) -> str:
    """A name in the folder, but for a record that a killed run was about to put in place; empty if there is none."""
    return min((path.name for path in folder.iterdir() if not path.name.startswith(f".{RECORD}.")), default="")


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read(path, _MOST)).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _remove(folder: Path, path: str) -> None:
    """Remove a file, and the folders above it that are empty then."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (folder / path).unlink()
    for staged in (folder / path).parent.glob(f".{Path(path).name[:32]}.????????"):  # of a run that was killed
        staged.unlink(missing_ok=True)
    for parent in (folder / path).parents:
        if parent == folder:
            break
        with contextlib.suppress(OSError):
            parent.rmdir()
