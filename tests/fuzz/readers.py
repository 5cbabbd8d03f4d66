"""Every reader of files and text: seeds, and a call that may refuse its input with the reader's own errors alone.

A call that gets through checks what it can of the result: that it prints back to what was read, that its seal was
needed. ``sealed`` readers get a right checksum around the mutated content, so that mutations get past it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import struct
import zlib
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from plan_samples import CUDA_SMALL, SMALL
from tilesmith.db.exchange import import_file
from tilesmith.db.files import records_folder
from tilesmith.db.find_text import read_find_line, target_of_file
from tilesmith.db.lines import line_of, read_line
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record, Search
from tilesmith.dispatch.hits import _choice_of
from tilesmith.dispatch.spec.choice import read_spec
from tilesmith.dispatch.spec.pattern import parse_pattern
from tilesmith.errors import LaunchError, PlanError, TilesmithError
from tilesmith.plan.serial import decode, encode, read_head
from tilesmith.problems.driver import command_of, parse_command, read_commands
from tilesmith.problems.find_key import parse_find_key
from tilesmith.problems.keys import parse_key
from tilesmith.problems.layouts import parse_layout
from tilesmith.runtime._runtime import LoadedPlan
from tilesmith.solvers.solver import parse_config
from tilesmith.targets.names import parse_target
from tilesmith.toolchain import plans
from tilesmith.toolchain.cache import _entry, read_entry
from tilesmith.toolchain.inventory import inventory, remove_damaged
from tilesmith.toolchain.sealed import bind, unbind_with_record, unseal

PROBLEMS = Path(__file__).parents[2] / "benchmarks" / "problems"
KEYS = (
    "conv1;fwd;x=fp32,NHWC,2x9x11x8;w=fp32,NHWC,12x2x3x4;y=fp32,NHWC;stride=2x1;pad=1x2;dil=1x1;groups=2;acc=fp32",
    "conv1;bwd;x=bf16,NHWC,2x18x33x12;w=bf16,NHWC,8x2x3x6;y=bf16,NHWC;stride=2x3;pad=0x0;dil=1x1;groups=2;acc=fp32",
)
RECORD = Record(
    KEYS[0], "x86_64-v4:2:zen4", "c_dense", "mr=6 nr=2", revision=3, time_us=12.5, spread_us=0.25, samples=31,
    prepare_us=2.0, workspace=4096, error=0.5, bound=1.0, method="median", date="2026-01-01T00:00:00Z",
)  # fmt: skip
FIND_LINES = (
    b"64-56-56-3x3-128-28-28-16-1x1-2x2-1x1-0-NCHW-FP32-F=ConvAsm1x1U:0.0256,0,miopenConvolutionFwdAlgoDirect",
    b"64-56-56-1x1-128-56-56-16-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-BF16-B_g2=c_dense:0.5,128,"
    b"miopenConvolutionBwdDataAlgoDirect,revision=3 mr=8;ConvHip:0.7,0,miopenConvolutionBwdDataAlgoImplicitGEMM",
    b"64-28-28-1x1-64-28-28-16-0x0-1x1-1x1-0-NCHW-FP16-W=miopenConvolutionBwdWeightsAlgoGEMM:gemm,0.1,0,rocBlas,x",
)
SPEC = b"""# which kernel for which problem
[[choice]]
problem = "conv1;fwd;*"
target = "x86_64-v4:*"
solver = "c_dense"
config = "mr=6 nr=2"

[[choice]]
problem = "conv -n 1 -c 8 -H 6 -W 6 -k 8 -F 1"
solver = "c_reference"
"""


@dataclass(frozen=True)
class Reader:
    """``read`` takes bytes and a folder of its own; anything that it raises but ``TilesmithError`` is a finding."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes, Path], object]


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def strict_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def file_of(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def read_plan(data: bytes, folder: Path) -> None:
    rest = struct.pack("<Q", 24 + len(data)) + data
    whole = b"TSPLAN\r\n" + struct.pack("<II", 2, zlib.crc32(rest)) + rest
    try:
        plan = decode(whole)
    except PlanError:
        plan = None
    refused = None
    try:
        LoadedPlan(whole, ())
    except LaunchError as error:
        refused = error
    assert (plan is None) == (refused is not None), f"one decoder accepts it, the other does not: {refused}"
    assert plan is None or encode(plan) == whole
    try:
        head = read_head(whole)
    except PlanError:
        assert plan is None, "the plan is whole, its head is not"
    else:
        told = (head.problem, head.family, head.artifacts)
        assert plan is None or told == (plan.problem, plan.family, plan.artifacts)


def read_plan_file(data: bytes, folder: Path) -> None:
    path = folder / "plans" / ("a" * 40) / "b.plan"
    with contextlib.suppress(PlanError):
        plans.plan_in(path, data)
        raise AssertionError("a plan of another name was used")
    with contextlib.suppress(PlanError):
        plans.plan_in(path, bind(f"plans/{path.parent.name}/b.plan", data[32:]))


def read_hit_file(data: bytes, folder: Path) -> None:
    path = folder / "hits" / ("a" * 40 + ".hit")
    name = f"hits/{path.name}"
    with contextlib.suppress(PlanError):
        unbind_with_record(name, data)
        raise AssertionError("a hit of another name was used")
    with contextlib.suppress(PlanError):
        record, plan = unbind_with_record(name, bind(name, data))
        _choice_of(record.get("choice"))
        decode(plan)


HIT = {
    "states": [[1, 2, 3]],
    "choice": ["a.db", "user", astuple(RECORD), [["c_dense", ""]]],
}


def read_key_file(data: bytes, folder: Path) -> None:
    assert read_entry(data, "k" * 64) is None or data == KEY_FILE
    line = data.partition(b"\n")[0] + b"\n"
    unseal(line + hashlib.sha256(line).hexdigest().encode() + b"\n")


KEY_FILE = _entry("k" * 64, "d" * 64, "ts_a", "gcc 12", ())


def read_problem_key(data: bytes, folder: Path) -> None:
    found = parse_key(text(data))
    assert parse_key(found.key()) == found


def read_command(data: bytes, folder: Path) -> None:
    for _, signature in parse_command(text(data)).signatures:
        again = parse_command(command_of(signature))
        assert signature.canonical in [each.canonical for _, each in again.signatures]


def read_command_file(data: bytes, folder: Path) -> None:
    list(read_commands(file_of(data, folder, "list.txt")))


def read_json_line(data: bytes, folder: Path) -> None:
    found = read_line(strict_text(data))
    if found is not None:
        table, record = found
        assert read_line(line_of(table, record)) == found
        assert record in (RECORD, SEARCH), "a damaged record was read"


SEARCH = Search(KEYS[0], "x86_64-v4:2:zen4", "model", 0, 9, 1.5, "converged", "2026-01-01T00:00:00Z")


def read_find_text(data: bytes, folder: Path) -> None:
    target_of_file(strict_text(data[:40]))
    for record in read_find_line(strict_text(data), "gfx90a:104"):
        assert record.time_us is not None
        assert record.time_us > 0


def read_import(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        database = open_database(None)
        import_file(file_of(data, folder, name), database, "newest")
        list(database.records("results"))
        database.close()

    return read


def read_database(data: bytes, folder: Path) -> None:
    path = file_of(data, folder, "fuzzed.db")
    for readonly in (True, False):
        database = open_database(path, readonly=readonly)
        for record in (*database.ranking(RECORD.problem, RECORD.target), *database.records("trials")):
            assert record in (RECORD, replace(RECORD, config="mr=7")), "a damaged record was read"
        database.check()
        database.put_result(RECORD)
        database.close()
    for left in folder.iterdir():
        if left.is_file():
            left.unlink()


def read_record_file(data: bytes, folder: Path) -> None:
    path = folder / "files.db"
    records_folder(path).mkdir(exist_ok=True)
    database = open_database(path)
    database.put_result(RECORD)
    (file,) = [each for each in records_folder(path).rglob("*.json") if "results" in each.parts]
    file.write_bytes(data)
    assert database.ranking(RECORD.problem, RECORD.target) in ((), (RECORD,))
    database.check()


def read_inventory(data: bytes, folder: Path) -> None:
    """One file of each kind with this content: each is damaged, or is what was written."""
    key = "k" * 64
    for place in (
        f"keys/{key}.json",
        f"objects/{'d' * 64}.so",
        "plans/kkk/m.plan",
        "hits/h.hit",
        "machine/h.json",
        "staging/x",
        "y",
    ):
        path = folder / "cache" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for entry in inventory(folder / "cache", verify=True):
        assert entry.damage or entry.kind in ("passing", "foreign", "machine"), entry
    assert remove_damaged(folder / "cache")


def database_seed() -> bytes:
    database = open_database(None)
    database.put_result(RECORD)
    database.record_trials([RECORD, replace(RECORD, config="mr=7")])
    return bytes(database._connection.serialize())  # type: ignore[attr-defined]


def spec(data: bytes, folder: Path) -> None:
    read_spec.__globals__["_read"].cache_clear()
    read_spec(file_of(data, folder, "spec.toml"))


def may_refuse(call: Callable[[str], object], *errors: type[Exception]) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        with contextlib.suppress(*errors):
            call(text(data))

    return read


def commands() -> tuple[bytes, ...]:
    lines = [
        line.encode()
        for path in sorted(PROBLEMS.glob("*.txt"))
        for line in path.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    return tuple(lines[:: max(1, len(lines) // 40)])


def readers() -> tuple[Reader, ...]:
    logging.getLogger("tilesmith").addHandler(logging.NullHandler())
    logging.getLogger("tilesmith").propagate = False
    bodies = tuple(encode(plan)[24:] for plan in (SMALL, CUDA_SMALL))
    lines = tuple(
        line_of(table, record).encode()
        for table, record in (("results", RECORD), ("trials", RECORD), ("searches", SEARCH))
    )
    keys = tuple(key.encode() for key in KEYS)
    return (
        Reader("plan", bodies, read_plan),
        Reader("plan-file", tuple(bytes(32) + encode(plan) for plan in (SMALL, CUDA_SMALL)), read_plan_file),
        Reader("hit-file", (json.dumps(HIT).encode() + b"\n" + encode(SMALL),), read_hit_file),
        Reader("key-file", (KEY_FILE,), read_key_file),
        Reader("problem-key", keys, read_problem_key),
        Reader("command", commands(), read_command),
        Reader(
            "command-file",
            (b"\n".join(commands()[:9]) + b"\n" + KEYS[1].encode() + b" # fused\n# end\n",),
            read_command_file,
        ),
        Reader("spec", (SPEC,), spec),
        Reader("spec-pattern", (*keys, *commands()[:4], b"conv1;*", b"*"), may_refuse(parse_pattern)),
        Reader("json-line", lines, read_json_line),
        Reader("json-import", (b"\n".join(lines) + b"\n",), read_import("records.jsonl")),
        Reader("find-line", FIND_LINES, read_find_text),
        Reader("find-key", tuple(line.partition(b"=")[0] for line in FIND_LINES), may_refuse(parse_find_key)),
        Reader("find-import", (b"\n".join(FIND_LINES) + b"\n",), read_import("gfx90a68.HIP.fdb.txt")),
        Reader("database", (database_seed(),), read_database),
        Reader("inventory", (KEY_FILE, bytes(32) + bodies[0]), read_inventory),
        Reader("record-file", (lines[0] + b"\n",), read_record_file),
        Reader("target", (b"x86_64-v4:2", b"sm_90a:132"), may_refuse(parse_target)),
        Reader("config", (b"mr=6 nr=2", b""), may_refuse(parse_config, ValueError)),
        Reader("layout", (b"NHWC", b"NCHWc8", b"NCDHW"), may_refuse(parse_layout)),
    )


def refusal_of(reader: Reader, data: bytes, folder: Path) -> str:
    """What a reader did that it must not do; empty if all is well."""
    try:
        reader.read(data, folder)
    except TilesmithError as error:
        return "" if "\n" not in str(error) else f"a message of several lines: {error!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def seeds_of(reader: Reader, corpus: Path) -> tuple[bytes, ...]:
    """Its seeds, and what fuzzing has found before."""
    folder = corpus / reader.name
    found = sorted(path.read_bytes() for path in folder.iterdir()) if folder.is_dir() else []
    return (*reader.seeds, *found)
