"""JSON lines and MIOpen's find-db text: both ways, damaged, merged."""

import json
from dataclasses import asdict, replace

import pytest

from tilesmith.db.exchange import POLICIES, everything, find_db_lines, import_file, json_lines, merge
from tilesmith.db.find_text import find_line, read_find_line, target_of_file
from tilesmith.db.lines import line_of, read_line
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record, Search
from tilesmith.errors import FileFormatError, ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.find_key import find_key, parse_find_key

SIGNATURE = ConvSignature((2, 28, 28, 16), (32, 3, 3, 8), padding=1, groups=2, shared_layout="NHWC", dtype="bf16")
P, T = SIGNATURE.key(), "x86_64-v4:2:zen4"


def record(solver="c_dense", config="mh=1 mw=8", time_us=10.0, **more):
    base = Record(
        P, T, solver, config, 3, time_us, 0.125, 41, 2.5, 4096, 1e-3, 2e-3, method="m", compiler="gcc 12",
        generator="g", host="h", date="2026-01-02T03:04:05Z", origin="tune",
    )  # fmt: skip
    return replace(base, **more)


# --- JSON lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "held"),
    [
        ("results", record()),
        ("trials", record(config="").failed("14 of 9 wrong \u2028 \x00 é")),
        ("searches", Search(P, T, "model", 0, 40, 9.5, "converged", "2026-01-01")),
    ],
)
def test_lines_read_back(table, held):
    line = line_of(table, held)
    assert "\n" not in line
    assert read_line(line) == (table, held)


def test_numbers_that_are_none_are_null():
    line = line_of("results", record(error=float("inf"), bound=float("nan")))
    assert read_line(line)[1] == record(error=None, bound=None)


def test_every_changed_field_of_a_line_is_refused():
    line = json.loads(line_of("results", record()))
    for name, value in line.items():
        changed = value + 1 if isinstance(value, int | float) else f"{value}x"
        for damaged in (line | {name: changed}, {k: v for k, v in line.items() if k != name}):
            with pytest.raises(FileFormatError):
                read_line(json.dumps(damaged))
        with pytest.raises(FileFormatError):
            read_line(json.dumps(line | {name: None}))
    with pytest.raises(FileFormatError, match="'note', which does not exist"):
        read_line(json.dumps(line | {"note": 1}))


def test_every_changed_byte_of_a_line_is_refused_or_changes_nothing():
    held = record()
    line = line_of("results", held).encode()
    for place in range(len(line)):
        for bit in (0, 5):
            damaged = bytearray(line)
            damaged[place] ^= 1 << bit
            try:
                found = read_line(damaged.decode("utf-8", "replace"))
            except FileFormatError:
                continue
            # Between tokens a space may become another one; a version may become a newer one, which is left out.
            assert found is None or found == ("results", held)


def test_a_newer_format_is_a_miss():
    line = json.loads(line_of("results", record()))
    assert read_line(json.dumps(line | {"format": "tilesmith result 2", "unheard": [1]})) is None


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", "null", '{"format": "tilesmith"}', '{"format": 7}', "{}", "[" * 10**5]
)
def test_what_is_no_line(text):
    with pytest.raises(FileFormatError):
        read_line(text)


# --- import -----------------------------------------------------------------------------------------------------------


def test_a_file_is_imported_with_the_numbers_of_its_bad_lines(tmp_path):
    path = tmp_path / "in.jsonl"
    good, other = line_of("results", record()), line_of("trials", record(config="mh=2 mw=2"))
    newer = good.replace("tilesmith result 1", "tilesmith result 9")
    path.write_bytes(
        f"{good}\n\nrubbish\n{good.replace('10.0', '10.5')}\n{newer}\n".encode() + b"\xff\xfe{\n" + other.encode()
    )
    database = open_database(None)
    taken = import_file(path, database, "newest")
    assert (taken.added, taken.newer) == (2, 1)
    assert [line.split(": ")[0] for line in taken.bad] == [f"{path}:{n}" for n in (3, 4, 6)]
    assert database.ranking(P, T) == (record(),)
    assert [r.config for r in database.trials(P, T)] == ["mh=2 mw=2"]


def test_everything_exported_comes_back(tmp_path):
    first = open_database(tmp_path / "a.db")
    first.put_results([record(), record("c_reference", "", 99.0)])
    first.record_trials([record(config=f"mh={i}", time_us=10.0 + i) for i in range(2500)])
    path = tmp_path / "all.jsonl"
    path.write_text("\n".join(json_lines(everything(first))))
    second = open_database(None)
    assert import_file(path, second, "mine").added == 2502
    assert list(everything(second)) == list(everything(first))
    again = import_file(path, second, "fastest")
    assert (again.added, again.replaced, again.kept) == (0, 0, 2502)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be read"):
        import_file(tmp_path, open_database(None), "newest")


@pytest.mark.parametrize(
    ("policy", "winners"),
    [
        ("mine", ["mine", "mine", "mine", "mine"]),
        ("newest", ["theirs", "mine", "theirs", "mine"]),
        ("fastest", ["mine", "theirs", "theirs", "mine"]),
    ],
)
def test_policies(policy, winners):
    """Newer and slower; older and faster; a newer revision that is slower; a failure of the same day."""
    mine = record(host="mine")
    theirs = [
        replace(mine, time_us=12.0, date="2026-02-01T00:00:00Z", host="theirs"),
        replace(mine, time_us=8.0, date="2025-02-01T00:00:00Z", host="theirs"),
        replace(mine, time_us=12.0, date="2026-02-01T00:00:00Z", revision=4, host="theirs"),
        replace(mine.failed("no"), host="theirs"),
    ]
    for other, winner in zip(theirs, winners, strict=True):
        for table in ("results", "trials"):
            database = open_database(None)
            merge([(table, mine)], database, policy)
            taken = merge([(table, other)], database, policy)
            (held,) = database.ranking(P, T) if table == "results" else database.trials(P, T)
            assert held.host == winner
            assert (taken.added, taken.replaced, taken.kept) == ((0, 1, 0) if winner == "theirs" else (0, 0, 1))
    assert set(POLICIES) == {"newest", "fastest", "mine"}


# --- MIOpen's text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (
            "1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-FP32-F",
            "conv1;fwd;x=fp32,NCHW,1x1x160x698;w=fp32,NCHW,64x1x5x5;y=fp32,NCHW;stride=2x2;pad=1x1;dil=1x1;groups=1;acc=fp32",
        ),
        (
            "512-3-242-322-3x3x3-256-1-240-320-1-0x0x0-1x1x1-1x1x1-0-NCDHW-BF16-F",
            "conv1;fwd;x=bf16,NCDHW,1x512x3x242x322;w=bf16,NCDHW,256x512x3x3x3;y=bf16,NCDHW;stride=1x1x1;pad=0x0x0;"
            "dil=1x1x1;groups=1;acc=fp32",
        ),
        (
            "128-28-28-3x3-64-56-56-16-1x1-2x2-1x1-0-NHWC-NHWC-NHWC-FP16-B_g2",
            "conv1;bwd;x=fp16,NHWC,16x56x56x64;w=fp16,NHWC,128x3x3x32;y=fp16,NHWC;stride=2x2;pad=1x1;dil=1x1;groups=2;acc=fp32",
        ),
        (
            "48-14-14-5x5-16-14-14-3-2x2-1x1-1x1-0-NHWC-NCHW-NCHW-FP32-W",
            "conv1;wrw;x=fp32,NCHW,3x16x14x14;w=fp32,NCHW,48x16x5x5;y=fp32,NHWC;stride=1x1;pad=2x2;dil=1x1;groups=1;acc=fp32",
        ),
        (
            "64-8-8-1x1-32-8-8-2-0x0-1x1-1x1-0-NCHW-INT8INT8INT32-F",
            "conv1;fwd;x=int8,NCHW,2x64x8x8;w=int8,NCHW,32x64x1x1;y=int32,NCHW;stride=1x1;pad=0x0;dil=1x1;groups=1;acc=int32",
        ),
    ],
)
def test_keys_both_ways(key, problem):
    assert parse_find_key(key).canonical.key() == problem
    assert find_key(parse_find_key(key)) == key


@pytest.mark.parametrize(
    "key",
    [
        "", "F", "x", "1-2-3", "1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-FP32-Q",
        "1-160-698-5x5-64-79-349-1-1x1-2x2-1x1-0-NCHW-FP32-F",  # the output's width
        "1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-1-NCHW-FP32-F",  # a bias
        "1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-FP33-F",
        "1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-NCHW-FP32-F",
        "1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-FP32-F_g3",
        "1-160-698-5x5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-FP32-F",
        "1-160-698-5x5-64-79-348-0-1x1-2x2-1x1-0-NCHW-FP32-F",
        "-1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-FP32-F",
    ],
)  # fmt: skip
def test_what_is_no_key(key):
    with pytest.raises(ProblemError):
        parse_find_key(key)


def test_what_a_key_cannot_say():
    for other in (
        replace(SIGNATURE, epilogue=Epilogue(activation="relu")),
        replace(SIGNATURE, input_strides=(28 * 28 * 20, 28 * 20, 20, 1)),
        replace(SIGNATURE, deterministic=True),
        replace(SIGNATURE, mode="bgrad"),
    ):
        with pytest.raises(ProblemError):
            find_key(other)


def test_a_line_of_miopen_in_both_forms():
    key = "1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-FP32-F"
    new = (
        f"{key}=ConvBinWinogradRxSf2x3g1:0.03856,0,miopenConvolutionFwdAlgoWinograd;"
        "GemmFwdRest:0.05712,2749200,miopenConvolutionFwdAlgoGEMM"
    )
    old = (
        f"{key}=miopenConvolutionFwdAlgoWinograd:ConvBinWinogradRxSf2x3g1,0.03856,0,miopenConvolutionFwdAlgoWinograd,"
        "not used;miopenConvolutionFwdAlgoGEMM:GemmFwdRest,0.05712,2749200,miopenConvolutionFwdAlgoGEMM,not used\n"
    )
    found = read_find_line(new, "gfx90a:104")
    assert found == read_find_line(old, "gfx90a:104")
    assert [(r.solver, r.time_us, r.workspace, r.target, r.origin, r.revision) for r in found] == [
        ("ConvBinWinogradRxSf2x3g1", pytest.approx(38.56), 0, "gfx90a:104", "import", 0),
        ("GemmFwdRest", pytest.approx(57.12), 2749200, "gfx90a:104", "import", 0),
    ]
    assert find_line(found[0].problem, found).replace("ImplicitGEMM", "Direct").startswith(key)


def test_what_is_written_reads_back_with_config_and_revision():
    held = [record("c_dense@gemm", time_us=12.345), record("c_reference", "", 250.0), record("c_grouped").failed("no")]
    line = find_line(P, held)
    assert line == (
        f"{find_key(SIGNATURE)}=c_dense@gemm:0.012345,4096,miopenConvolutionFwdAlgoGEMM,revision=3 mh=1 mw=8;"
        "c_reference:0.25,4096,miopenConvolutionFwdAlgoDirect,revision=3"
    )
    back = read_find_line(line, T)
    assert [(r.problem, r.solver, r.config, r.revision, r.workspace) for r in back] == [
        (P, "c_dense@gemm", "mh=1 mw=8", 3, 4096), (P, "c_reference", "", 3, 4096),
    ]  # fmt: skip
    assert [r.time_us for r in back] == pytest.approx([12.345, 250.0])


@pytest.mark.parametrize(
    "content",
    ["", "S", "S:", "S:x,0,a", "S:-1,0,a", "S:nan,0,a", "S:1", "S:1,-1,a", "S S:1,0,a", "S:1,9e99,a", ":1,0,a"],
)
def test_bad_entries(content):
    with pytest.raises(FileFormatError):
        read_find_line(f"{find_key(SIGNATURE)}={content}", T)


def test_problems_without_a_line_are_counted():
    gemm = "gemm1;m=8;n=8;k=8;batch=1;a=fp32,n;b=fp32,n;c=fp32;acc=fp32;alpha=1.0;beta=0.0"
    left_out = []
    lines = list(find_db_lines([record(), record("c_reference", "", 5.0), record(problem=gemm)], left_out))
    assert len(lines) == 1
    assert lines[0].index("c_reference") < lines[0].index("c_dense")
    assert left_out == [gemm]


def test_the_target_of_find_db_text(tmp_path):
    names = {
        "gfx90a68.HIP.fdb.txt": "gfx90a:104", "gfx906_60.HIP.fdb.txt": "gfx906:60", "gfx1030_36.fdb.txt": "gfx1030:36",
        "gfx942130.HIP.fdb.txt": "gfx942:304", "gfx110060.HIP.fdb.txt": "gfx1100:96", "mine.txt": None,
    }  # fmt: skip
    assert {name: target_of_file(name) for name in names} == names
    line = f"{find_key(SIGNATURE)}=S:1,0,a"
    (tmp_path / "gfx90a68.HIP.fdb.txt").write_text(f"{line}\nbad=S:1,0,a\n")
    database = open_database(None)
    taken = import_file(tmp_path / "gfx90a68.HIP.fdb.txt", database, "newest")
    assert (taken.added, len(taken.bad)) == (1, 1)
    assert database.problems() == ((P, "gfx90a:104"),)
    (tmp_path / "mine.txt").write_text(line)
    with pytest.raises(FileFormatError, match="--target"):
        import_file(tmp_path / "mine.txt", database, "newest")
    assert import_file(tmp_path / "mine.txt", database, "newest", T).added == 1


def test_fields_of_a_line_are_those_of_the_record():
    line = json.loads(line_of("results", record()))
    assert {k: v for k, v in line.items() if k not in ("format", "seal")} == asdict(record())
