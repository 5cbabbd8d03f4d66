"""The tuning spec: a text file of choices that come before every database (``TILESMITH_TUNING_SPEC_PATH``).

One choice a line: ``KEY TARGET SOLVER [NAME=VALUE ...]``. ``KEY`` is a problem's key, ``TARGET`` a target's name or
``*``; without a config the solver's default is used. ``#`` begins a comment, and the last line for a problem wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilesmith import env
from tilesmith.dispatch.choose import SPEC, Choice, Option, marked
from tilesmith.errors import FileFormatError, ProblemError, TargetError
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.signature import parse_key
from tilesmith.solvers.solver import Config, parse_config
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import Target

ANY_TARGET = "*"


@dataclass(frozen=True)
class Line:
    """One choice, and where it stands."""

    place: str
    key: str
    target: str
    solver: str
    config: Config | None


def spec_choice(signature: Signature, target: Target, options: tuple[Option, ...]) -> Choice | None:
    """What the tuning spec of the environment says of a problem; None without a spec, or a line for it.

    Raises ``FileFormatError`` for a file that cannot be read, or a line that the solver table contradicts.
    """
    path = env.TUNING_SPEC_PATH.get()
    if path is None:
        return None
    key = signature.key()
    lines = [line for line in _lines(path) if line.key == key and line.target in (target.name, ANY_TARGET)]
    if not lines:
        return None
    line = lines[-1]
    option = next((o for o in options if o.candidate.name == line.solver), None)
    if option is None:
        known = ", ".join(o.candidate.name for o in options)
        raise FileFormatError(f"{line.place}: solver {line.solver!r} does not exist for this problem; known: {known}")
    if not option.accepted:
        raise FileFormatError(
            f"{line.place}: solver {line.solver} cannot compute this problem: {option.candidate.verdict}"
        )
    config = option.config
    if line.config is not None:
        solver, geometry = option.candidate.solver, option.candidate.geometry
        if not solver.search_space(geometry, target).contains(line.config):
            raise FileFormatError(f"{line.place}: config {line.config} is outside the search space of {line.solver}")
        config = str(line.config)
    return Choice(line.solver, config, SPEC, str(path), None, marked(options, line.solver, config))


def _lines(path: Path) -> tuple[Line, ...]:
    try:
        stamp = path.stat()
        return _read(path, stamp.st_mtime_ns, stamp.st_size)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=8)
def _read(path: Path, mtime: int, size: int) -> tuple[Line, ...]:
    """The lines of the file as it is now: its time and size are part of the memo's key."""
    lines = []
    for number, raw in enumerate(path.read_bytes().splitlines(), 1):
        place = f"{path}:{number}"
        words = raw.decode("utf-8", "replace").partition("#")[0].split()
        if not words:
            continue
        if len(words) < 3:
            raise FileFormatError(f"{place}: a line is KEY TARGET SOLVER [NAME=VALUE ...], got {' '.join(words)!r}")
        try:
            key = parse_key(words[0]).key()
            if words[1] != ANY_TARGET:
                parse_target(words[1])  # a misspelt target would be a line that nobody ever meets
        except (ProblemError, TargetError) as error:
            raise FileFormatError(f"{place}: {error}") from None
        try:
            config = parse_config(" ".join(words[3:])) if words[3:] else None
        except ValueError:
            raise FileFormatError(f"{place}: config {' '.join(words[3:])!r} is not NAME=INTEGER ...") from None
        lines.append(Line(place, key, words[1], words[2], config))
    return tuple(lines)
