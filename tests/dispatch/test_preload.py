"""Problems made ready: what is preloaded runs in another process that may neither compile nor measure."""

import json
import os
import subprocess
import sys

import pytest

import tilesmith
from tilesmith import CachePopulator, ConvSignature, GemmSignature
from tilesmith.cli.main import run
from tilesmith.dispatch import resolve
from tilesmith.dispatch.locations import open_cache, open_databases
from tilesmith.errors import ArgumentError, CommandError, CompileError, FileFormatError
from tilesmith.ready import preload
from tilesmith.toolchain.cache import ArtifactCache

CONV = "conv -n 1 -c 16 -H 8 -W 8 -k 16 -y 3 -x 3 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC"
SAME = "conv -n 1 -c 16 -H 8 -W 8 -k 16 -y 3 -x 3 -z same -F 1 --in_layout NHWC --fil_layout NHWC --out_layout NHWC"
GEMM = "gemm -m 16 -n 16 -k 16"
CHILD = """
import sys, numpy, tilesmith
from tilesmith.problems.driver import read_commands
for line in read_commands(sys.argv[1]):
    for _, signature in line.command.signatures if line.command else ():
        launch = tilesmith.get_launchable(signature)
        assert numpy.isfinite(launch(*signature.get_sample_args(seed=0))).all()
        print(launch.choice.basis, launch.remembered)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    path = tmp_path / "problems.txt"
    path.write_text(f"# a model\n{CONV}\n{GEMM}\n{SAME}\n")
    return path


def elsewhere(path, mode, code=CHILD):
    empty = path.parent / "empty"
    empty.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "CC"}
    return subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120, check=False,
        env=environment | {"TILESMITH_FIND_MODE": mode, "PATH": str(empty)},
    )  # fmt: skip


def test_what_is_preloaded_runs_in_strict_mode(file):
    populator = CachePopulator(commands_file=file)
    assert [s.get_func_name().split("_")[0] for s in populator.signatures] == ["conv2d", "gemm"]  # one of them twice
    names = [signature.get_func_name() for signature in populator.signatures]
    assert populator.get_cache_status(names[0]) == {"cpu": False}
    steps = []
    populator.run(2, lambda step: steps.append((step.signature, step.phase)))
    assert populator.get_failures() == {}
    assert [populator.get_cache_status(name) for name in names] == [{"cpu": True}] * 2
    assert sorted(phase for _, phase in steps) == ["compiled", "compiled", "ready", "ready"]
    done = elsewhere(file, "strict")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["database True"] * 3


@pytest.mark.parametrize(
    "command", ["convint8 -n 1 -c 4 -H 6 -W 6 -k 4 -F 1", "convfp64 -n 1 -c 4 -H 6 -W 6 -k 4 -F 4"]
)
def test_a_problem_that_one_solver_alone_computes_is_made_ready(file, command):
    file.write_text(command)
    missing = elsewhere(file, "strict")
    assert "type `tilesmith preload" in missing.stderr
    populator = CachePopulator(commands_file=file)
    populator.run()
    assert populator.get_failures() == {}
    done = elsewhere(file, "strict")
    assert done.stdout.split() == ["prediction", "True"], done.stderr


def test_a_second_run_compiles_and_measures_nothing(file, monkeypatch):
    CachePopulator(commands_file=file).run()
    tilesmith.forget()

    def refuse(*args, **kwargs):
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr(resolve, "_measure", refuse)
    monkeypatch.setattr("tilesmith.toolchain.build.build_unit", refuse)
    again = CachePopulator(commands_file=file)
    again.run()
    assert again.get_failures() == {}


def test_measuring_takes_the_kernels_that_were_compiled_before(file, monkeypatch):
    """The compilers run first, several at a time; beside a measurement there is none."""
    measuring = []
    build, measure = ArtifactCache.get_or_build, resolve._measure

    def watched(*args, **kwargs):
        assert not measuring
        return build(*args, **kwargs)

    def marked(*args):
        monkeypatch.setattr("tilesmith.tune.units.build_unit", lambda *a, **k: pytest.fail("compiled in a search"))
        measure(*args)
        measuring.append(True)
        monkeypatch.setattr(ArtifactCache, "get_or_build", build)

    monkeypatch.setattr(ArtifactCache, "get_or_build", watched)
    monkeypatch.setattr(resolve, "_measure", marked)
    populator = CachePopulator(commands=[CONV])
    populator.run()
    assert populator.get_failures() == {}
    assert measuring


def test_fast_measures_nothing_and_serves_fast(file, monkeypatch):
    monkeypatch.setattr(resolve, "_measure", lambda *args: pytest.fail("measured"))
    populator = CachePopulator(commands_file=file, mode="fast")
    populator.run()
    assert populator.get_failures() == {}
    done = elsewhere(file, "fast")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {"prediction True"}


def test_strict_says_what_is_ready(file):
    CachePopulator(commands=[CONV]).run()
    check = CachePopulator(commands_file=file, mode="strict")
    check.run()
    assert [name.split("_")[0] for name in check.get_failures()] == ["gemm"]
    assert "no database holds" in next(iter(check.get_failures().values()))


def test_failures_have_reasons_and_the_rest_is_done(file, monkeypatch):
    populator = CachePopulator(commands_file=file)
    conv, gemm = (signature.get_func_name() for signature in populator.signatures)
    settle = preload.resolve

    def fail(request):
        if isinstance(request.signature, ConvSignature):
            raise CompileError("the compiler is on strike")
        return settle(request)

    monkeypatch.setattr(preload, "resolve", fail)
    populator.run()
    assert populator.get_failures() == {conv: "cpu: the compiler is on strike"}
    assert populator.get_cache_status(conv) == {"cpu": False}
    assert populator.get_cache_status(gemm) == {"cpu": True}
    monkeypatch.setattr(preload, "resolve", settle)
    populator.run()
    assert populator.get_failures() == {}
    assert populator.get_cache_status(conv) == {"cpu": True}


def test_a_cache_that_cannot_be_kept_is_a_failure(file, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    populator = CachePopulator(commands=[CONV], mode="fast")
    populator.run()
    assert "cannot be written" in next(iter(populator.get_failures().values()))


def test_sources_only(file, tmp_path):
    populator = CachePopulator(commands_file=file, devices=[""])
    populator.run()
    for signature in populator.signatures:
        folder = open_cache().directory / "sources" / signature.get_func_name()
        (path, *_) = folder.iterdir()
        assert path.suffix == ".c"
        assert path.stem in path.read_text()
        assert populator.get_cache_status(signature.get_func_name()) == {"": True}
    assert not (open_cache().directory / "objects").exists()
    assert not (tmp_path / "test.db").exists()
    other = CachePopulator(
        commands=[CONV], devices=[""], out=tmp_path / "out", target=tilesmith.parse_target("sm_90a:132")
    )
    other.run()
    assert {path.suffix for path in (tmp_path / "out").rglob("*") if path.is_file()} == {".cu"}


def test_signatures_and_commands_in_order_each_once():
    gemm = GemmSignature(16, 16, 16)
    populator = CachePopulator(signatures=[gemm, gemm], commands=[CONV, GEMM])
    assert [s.get_func_name().split("_")[0] for s in populator.signatures] == ["gemm", "conv2d"]
    with pytest.raises(ArgumentError, match="'nothing' is the get_func_name"):
        populator.get_cache_status("nothing")


def test_what_cannot_be_read(file, caplog):
    file.write_text(f"{CONV}\nconv --bad 3\n{GEMM}\n")
    populator = CachePopulator(commands_file=file)
    assert len(populator.signatures) == 2
    (bad,) = populator.bad_lines
    assert str(bad).startswith(f"{file}:2: ")
    assert str(bad) in caplog.text
    with pytest.raises(CommandError):
        CachePopulator(commands=["conv --bad 3"])
    with pytest.raises(FileFormatError):
        CachePopulator(commands_file=file.parent / "nothing.txt")


def test_the_cache_switched_off(file, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_ON", "0")
    with pytest.raises(ArgumentError, match="TILESMITH_CACHE_ON=0"):
        CachePopulator(commands_file=file)


# --- the verb -----------------------------------------------------------------------------------------------------


def test_the_verb(file, capsys):
    assert run(["preload", str(file), "--device", "cpu", "-j", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["device"], row["status"], row["basis"]) for row in rows] == [("cpu", "ready", "measurement")] * 2
    assert rows[0]["command"] == CONV
    assert "2 ready, 0 failed, 0 bad lines" in err
    assert run(["preload", str(file), "--mode", "strict"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_verb_goes_on_behind_bad_lines_and_failures(file, capsys):
    file.write_text(f"{CONV}\nconv --bad 3\n")
    assert run(["preload", str(file), "--mode", "fast"]) == 2
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert f"{file}:2: " in err
    file.write_text(f"{CONV}\n")
    assert run(["preload", str(file), "--mode", "strict"]) == 1
    assert "no database holds" in capsys.readouterr().err


def test_a_command_keeps_its_own_j(capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(CachePopulator, "run", lambda self, jobs, listener: seen.append((jobs, self.signatures)))
    words = f"{CONV} -l 2 -j 2".split()
    for arguments in (["-j", "3", *words], ["-j", "3", " ".join(words)]):
        assert run(["preload", *arguments]) == 0
    for jobs, (signature,) in seen:
        assert jobs == 3
        assert signature.dilation == (2, 2)


def test_sources_by_the_verb(file, capsys, tmp_path):
    assert run(["preload", str(file), "--device", "", "--out", str(tmp_path / "out")]) == 0
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [name.split("_")[0] for name in folders] == ["conv2d", "gemm"]
    assert run(["preload", str(file), "--out", str(tmp_path / "out")]) == 2
    assert '--device ""' in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_done(file, monkeypatch, capsys):
    settle, count = preload.resolve, []

    def interrupted(request):
        if isinstance(request.signature, GemmSignature):
            raise KeyboardInterrupt
        count.append(request.signature)
        return settle(request)

    monkeypatch.setattr(preload, "resolve", interrupted)
    assert run(["preload", str(file)]) == 130
    monkeypatch.setattr(preload, "resolve", settle)
    check = CachePopulator(commands=[CONV], mode="strict")
    check.run()
    assert check.get_failures() == {}
    assert open_databases().writable.problems()
