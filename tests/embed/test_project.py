"""The project's folder: written again, selected, interrupted and removed; and every bad input refused in one line."""

from __future__ import annotations

import json
import re

import pytest
from embedded import PITCHED, REAL, TARGET

from tilesmith.cli.main import run as command
from tilesmith.dispatch.locations import open_cache, open_databases
from tilesmith.errors import TargetError
from tilesmith.package.build import Rows, assemble_package, pack_problems
from tilesmith.package.embed.description import fields_of
from tilesmith.package.embed.folder import RECORD
from tilesmith.package.embed.targets import library_targets
from tilesmith.package.files import PackageFile, write
from tilesmith.package.records import Kind
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature

LINE = "conv -n 1 -c 16 -k 16 -H 8 -W 8 -y 3 -x 3 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC"


def files(folder):
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()
    }


def embed(folder, *words, name="lib"):
    """The exit status of a run that writes sources alone."""
    (folder / "list.txt").write_text(f"{LINE}\n")
    place = ["--name", name, "-o", str(folder / "out"), "--sources-only"]
    return command(["embed", str(folder / "list.txt"), *place, *(words or ("--target", "x86_64-v3"))])


def test_the_same_again_writes_nothing(tmp_path):
    assert embed(tmp_path) == 0
    before = files(tmp_path / "out")
    assert embed(tmp_path) == 0
    assert files(tmp_path / "out") == before


def test_a_run_that_was_killed_is_continued(tmp_path):
    """Whatever is missing or half a file, the same command makes the same folder."""
    assert embed(tmp_path) == 0
    whole = {path: data for path, (data, _) in files(tmp_path / "out").items()}
    for number, path in enumerate(sorted(whole)):
        if path != RECORD and number % 3 == 0:
            (tmp_path / "out" / path).unlink()
        elif path != RECORD and number % 3 == 1:
            (tmp_path / "out" / path).write_bytes(whole[path][:7])
    (tmp_path / "out" / f".{RECORD}.abcdefgh").write_bytes(b"{")
    assert embed(tmp_path) == 0
    assert {path: data for path, (data, _) in files(tmp_path / "out").items()} == whole | {f".{RECORD}.abcdefgh": b"{"}
    assert command(["embed", "--clean", "-o", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out").exists()


def test_clean_removes_what_was_made_and_nothing_else(tmp_path, capsys):
    assert embed(tmp_path) == 0
    out = tmp_path / "out"
    kept = {"mine.c": "1", "src/mine.c": "2", "lib/libmine.a": "3", "build/mine": "4"}
    made = {
        "lib/lib.a": "",
        "lib/lib.so.1.0.0": "",
        "bin/lib_sample": "",
        "build/x86_64/a.o": "",
        "lib/aarch64/lib.a": "",
    }
    for path, text in (kept | made).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text)
    assert command(["embed", "--clean", "-o", str(out)]) == 0
    assert {path: data.decode() for path, (data, _) in files(out).items()} == kept
    capsys.readouterr()
    assert command(["embed", "--clean", "-o", str(out)]) == 2
    assert "nothing is removed" in capsys.readouterr().err


def test_another_list_removes_stale_kernels(tmp_path):
    assert embed(tmp_path, "--target", "x86_64-v3;aarch64") == 0
    assert list((tmp_path / "out").rglob("src/kernels/aarch64/*.c"))
    assert embed(tmp_path, "--target", "x86_64-v3") == 0
    assert not (tmp_path / "out" / "src" / "kernels" / "aarch64").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--target", "x86_64-v9"], "target arch 'x86_64-v9' does not exist"),
        (["--target", " ; "], "no target"),
        ([], "no target"),
        (["--target", "x86_64-v3", "--name", "9lives"], "cannot begin the names of C functions"),
        (["--target", "x86_64-v3", "--name", "ts_mine"], "cannot begin the names of C functions"),
        (["--target", "x86_64-v3", "--name", "class"], "cannot begin the names of C functions"),
        (["--target", "x86_64-v3", "--name", "stdio"], "cannot begin the names of C functions"),
        (["--target", "x86_64-v3", "--version", "1"], "is not MAJOR.MINOR.PATCH"),
        (["--target", "x86_64-v3", "--package", "missing.kdb"], "missing.kdb"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, words, told):
    (tmp_path / "list.txt").write_text(f"{LINE}\n")
    place = [] if "--name" in words else ["--name", "lib"]
    assert command(["embed", str(tmp_path / "list.txt"), "-o", str(tmp_path / "out"), *place, *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("tilesmith:") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_of_other_files_is_left_alone(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    assert embed(tmp_path) == 2
    assert "holds thesis.txt, which no earlier run wrote" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_an_empty_list_is_refused(tmp_path, capsys):
    (tmp_path / "list.txt").write_text("# nothing\n")
    words = ["--target", "x86_64-v3", "--name", "lib", "-o", str(tmp_path / "out")]
    assert command(["embed", str(tmp_path / "list.txt"), *words]) == 2
    assert "names no problem" in capsys.readouterr().err


def test_targets():
    found = library_targets(["sm_90a:132;sm_80_108", "x86_64-v4", "aarch64:4;x86_64-v4"])
    assert [target.name for target in found] == [
        "sm_90a:132:h200", "sm_80:108:a100-sxm4-40gb", "x86_64-v4:8:generic", found[3].name,
    ]  # fmt: skip
    assert found[3].name.startswith("aarch64:4:")
    with pytest.raises(TargetError, match="x86_64"):
        library_targets(["x86_64"])


def test_a_package_decides(tmp_path):
    """Its choice of kernels is taken, made anew as C text; of its problems, those of no list go in as well."""
    signatures = [each for each in REAL if isinstance(each, ConvSignature)][:2]
    layers, cache = open_databases(readonly=True), open_cache()
    packed = pack_problems(signatures, TARGET, layers, cache, plans=2)
    package = assemble_package("p", TARGET, packed, layers, Rows())
    write(tmp_path / "p.kdb", package)
    words = ["embed", "--package", str(tmp_path / "p.kdb"), "--name", "lib", "--plans", "2", "--sources-only"]
    assert command([*words, "-o", str(tmp_path / "out")]) == 0
    (array,) = (tmp_path / "out" / "src" / "packages").iterdir()
    made = PackageFile(bytes_of(array.read_text())).load()
    chosen = [(e.problem, e.rank, plan_of(e)) for e in package.of_kind(Kind.PLAN)]
    assert [(e.problem, e.rank, plan_of(e)) for e in made.of_kind(Kind.PLAN)] == chosen
    assert not made.of_kind(Kind.BINARY)


def bytes_of(text):
    """The package in a C file; the last word's zeros are cut by the header's own length."""
    words = re.findall(r"0x[0-9a-f]+", text[text.rindex("{") :])
    data = b"".join(int(word, 16).to_bytes(8, "little") for word in words)
    return data[: int.from_bytes(data[16:24], "little")]


def plan_of(entry):
    from tilesmith.plan.serial import decode

    plan = decode(entry.content())
    return plan.solver, plan.config


def test_a_selection_decides(tmp_path, capsys):
    """One trait and one mode leave that problem's kernels alone, and no plain reference."""
    deconv = "conv{} -n 1 -c 32 -k 16 -H 7 -W 7 -y 4 -x 4 -p 1 -q 1 -u 2 -v 2 -m trans -F 1 -I NHWC -f NHWC -O NHWC"
    problems = [LINE, LINE.replace("conv", "convfp16"), deconv.format(""), deconv.format("fp16")]
    (tmp_path / "s.toml").write_text(
        f'problems = {json.dumps(problems)}\ntraits = ["fp16"]\nmodes = ["deconv"]\nreference = false\n'
    )
    words = ["embed", "--select", str(tmp_path / "s.toml"), "--target", "x86_64-v3", "--name", "lib", "--sources-only"]
    assert command([*words, "-o", str(tmp_path / "out")]) == 0
    assert "1 problems for" in capsys.readouterr().out
    assert (tmp_path / "out" / "tests" / "problems.h").read_text().count("describe_") == 2
    assert not list((tmp_path / "out" / "src" / "runtime").glob("ts_reference*"))
    assert "TS_WITHOUT_REFERENCE" in (tmp_path / "out" / "src" / "lib_names.h").read_text()


def test_descriptions_have_every_field():
    assert ("y_pitch_c", "20") in fields_of(PITCHED)
    assert ("x_layout", "TS_LAYOUT4(C, H, W, N)") in fields_of(
        ConvSignature((8, 9, 9, 2), (4, 3, 3, 8), input_layout="CHWN", kernel_layout="NHWC", output_layout="NHWC")
    )
    assert ("math_mode", "TS_MATH_TF32") in fields_of(GemmSignature(m=8, n=8, k=8, acc_dtype="tf32"))
