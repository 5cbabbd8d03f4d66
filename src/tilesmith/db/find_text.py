"""MIOpen's find-db as text: one line a problem, ``KEY=SOLVER:TIME_MS,WORKSPACE,ALGORITHM;SOLVER:...``.

Older files have ``ALGORITHM:SOLVER,TIME_MS,WORKSPACE,ALGORITHM,...``; both are read. The target stands in the file's
name, such as ``gfx90a68.HIP.fdb.txt`` (104 compute units), not in the text. What is written has a fourth field for each
solver, its revision and config (``revision=3 mr=8 nv=2``), which other readers pass over: with it a line says all that
is needed to launch. Without it (MIOpen's own solvers, mostly) a record is a time to compare with, and no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilesmith.db.records import Record
from tilesmith.errors import FileFormatError, ProblemError, RecordError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.find_key import find_key, parse_find_key
from tilesmith.problems.keys import parse_key
from tilesmith.problems.limits import check_length

UNKNOWN_REVISION = 0  # of a solver that is not ours, or a line that does not say
_DIRECTIONS = {"fwd": "Fwd", "bwd": "BwdData", "wrw": "BwdWeights"}
_SOLVER = re.compile(r"[A-Za-z0-9_.@<>-]{1,200}")
_FILE = re.compile(r"(gfx(?:9[0-9a-f]{2}|1[0-9a-f]{3}))(?:_([0-9]{1,4})|([0-9a-f]{2,3}))\.")


def algorithm_of(solver: str) -> str:
    """The kind of algorithm that MIOpen would call a solver of ours."""
    if solver.endswith("@gemm"):
        return "GEMM"
    return "ImplicitGEMM" if "dense" in solver or solver.startswith("wgmma") else "Direct"


def find_line(problem: str, records: Sequence[Record]) -> str:
    """The line of a problem with its usable answers, the fastest first.

    Raises ``ProblemError`` for a problem that the text cannot say (a GEMM, an epilogue, a pitch).
    """
    signature = parse_key(problem)
    if not isinstance(signature, ConvSignature):
        raise ProblemError("a find-db holds convolutions")
    key = find_key(signature)
    algorithm = f"miopenConvolution{_DIRECTIONS[signature.mode]}Algo"
    entries = []
    for record in records:
        if record.ok and record.time_us is not None:
            time_ms = f"{record.time_us / 1000:.9g}"
            fields = [time_ms, str(record.workspace), algorithm + algorithm_of(record.solver)]
            if record.revision != UNKNOWN_REVISION:
                fields.append(f"revision={record.revision} {record.config}".rstrip())
            entries.append(f"{record.solver}:{','.join(fields)}")
    return f"{key}={';'.join(entries)}" if entries else ""


def read_find_line(text: str, target: str) -> tuple[Record, ...]:
    """The records of a line, measured on ``target``. Raises ``FileFormatError``, ``ProblemError``."""
    check_length("find-db line", text, FileFormatError)
    key, equal, content = text.strip().partition("=")
    if not equal or not content:
        raise FileFormatError("is no line KEY=SOLVER:TIME_MS,WORKSPACE,ALGORITHM;...")
    problem = parse_find_key(key).canonical.key()
    return tuple(_entry(entry, problem, target) for entry in content.split(";") if entry.strip())


def _entry(entry: str, problem: str, target: str) -> Record:
    name, _, rest = entry.strip().partition(":")
    fields = [field.strip() for field in rest.split(",")]
    if name.startswith("miopenConvolution"):  # the older form
        name, *fields = fields
        fields = fields[:3]
    try:
        time_us, workspace = float(fields[0]) * 1000, int(fields[1])
        if not _SOLVER.fullmatch(name):
            raise ValueError
        revision, config = _ours(fields[3]) if len(fields) > 3 else (UNKNOWN_REVISION, "")
    except (ValueError, IndexError):
        raise FileFormatError(
            f"has the entry {entry[:120]!r}, which is no SOLVER:TIME_MS,WORKSPACE,ALGORITHM"
        ) from None
    try:
        return Record(
            problem, target, name, config, revision=revision, time_us=time_us, spread_us=0.0, workspace=workspace,
            method="find-db", origin="import",
        )  # fmt: skip
    except RecordError as error:
        raise FileFormatError(f"has the entry {entry[:120]!r}, a {error}") from None


def _ours(text: str) -> tuple[int, str]:
    match = re.fullmatch(r"revision=([0-9]{1,9})((?: [a-z_0-9]+=-?[0-9]{1,18})*)", text)
    return (int(match[1]), match[2].strip()) if match else (UNKNOWN_REVISION, "")


def target_of_file(name: str) -> str | None:
    """The target in the name of a find-db file of MIOpen: ``gfx906_60.HIP.fdb.txt``, ``gfx90a68.fdb.txt``."""
    match = _FILE.match(name)
    if match is None:
        return None
    return f"{match[1]}:{int(match[2]) if match[2] else int(match[3], 16)}"
