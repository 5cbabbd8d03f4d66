"""From a signature to numbers: modes, memory across processes, and failures that must not fail a call."""

import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import levels
import tilesmith
from tilesmith import ConvSignature, GemmSignature, get_launchable
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.dispatch.locations import open_databases
from tilesmith.dispatch.measuring import check_launchable
from tilesmith.errors import ArgumentError, EnvironmentValueError, NoCompilerError, NoSolutionError, TargetError
from tilesmith.targets.cpu import CPU_TARGETS, cpu_target

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")


def arguments(signature, seed=0):
    return signature.get_sample_args(seed=seed)


def test_numbers_and_parts():
    launch = get_launchable(SMALL)
    x, w = arguments(SMALL)
    want = F.conv2d(*(torch.from_numpy(t).double().permute(0, 3, 1, 2) for t in (x, w)), padding=1)
    for y in (launch(x, w), launch.prepare(w)(x), launch(torch.from_numpy(x), torch.from_numpy(w)).numpy()):
        np.testing.assert_allclose(y.transpose(0, 3, 1, 2), want.numpy(), atol=1e-4)
    out = np.empty(SMALL.output_shape, np.float32)
    assert launch(x, w, out=out) is out
    assert launch.solver == launch.plan.solver
    assert launch.plan.problem == SMALL.key()
    assert any(line.chosen for line in launch.trace)
    assert launch.target.cores == 1
    assert get_launchable(SMALL) is launch


@pytest.mark.parametrize("mode", ["fwd", "bwd", "wrw", "bgrad"])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_direction_is_right(mode, transposed):
    sig = ConvSignature((2, 6, 7, 5), (6, 6, 3, 3), stride=2, padding=1, transposed=transposed, mode=mode)
    verdict = check_launchable(get_launchable(sig))
    assert verdict.ok, verdict.message


def test_gemm_with_initial_c():
    sig = GemmSignature(m=5, n=9, k=7, trans_b=True, alpha=0.5, beta=-1.5)
    launch = get_launchable(sig)
    a, b, c = arguments(sig)
    kept = c.copy()
    np.testing.assert_allclose(launch(a, b, c), 0.5 * a @ b.T - 1.5 * c, atol=1e-5)
    assert (c == kept).all()
    assert check_launchable(launch).ok


def test_strict_says_what_to_do_and_then_serves():
    with pytest.raises(NoSolutionError, match="tilesmith preload"):
        get_launchable(SMALL, mode="strict")
    first = get_launchable(SMALL, mode="hybrid")
    forget_launchables()
    again = get_launchable(SMALL, mode="strict")
    assert (again.solver, again.config) == (first.solver, first.config)
    assert again.choice.basis == "database"
    assert again.remembered


def test_strict_does_not_compile(tmp_path):
    get_launchable(SMALL, mode="hybrid")
    with pytest.raises(NoSolutionError, match="does not hold the kernel"):
        get_launchable(SMALL, mode="strict", cache=tmp_path / "empty")
    assert not list((tmp_path / "empty").rglob("*.so"))


def test_hybrid_measures_a_miss_once():
    launch = get_launchable(SMALL, mode="hybrid")
    assert launch.choice.basis == "measurement"
    held = open_databases().writable.ranking(SMALL.key(), launch.target.name)
    assert any(record.ok for record in held)
    forget_launchables()
    assert get_launchable(SMALL, mode="hybrid").choice.basis == "database"


def test_fast_never_measures():
    launch = get_launchable(SMALL, mode="fast")
    assert launch.choice.basis == "prediction"
    assert open_databases().writable.ranking(SMALL.key(), launch.target.name) == ()


def test_damaged_plans_and_artifacts_are_made_again(tmp_path, caplog):
    x, w = arguments(SMALL)
    want = get_launchable(SMALL, cache=tmp_path)(x, w)
    for kind in ("plans", "objects"):
        for path in [path for path in (tmp_path / kind).rglob("*") if path.is_file()]:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0xFF
            # A new file in its place: the old one is still mapped into this process.
            fresh = path.with_suffix(".damaged")
            fresh.write_bytes(bytes(data))
            fresh.replace(path)
        forget_launchables()
        with caplog.at_level("WARNING", "tilesmith"):
            launch = get_launchable(SMALL, cache=tmp_path)
        assert np.array_equal(launch(x, w), want)
        assert "damaged" in caplog.text or "lost" in caplog.text
        caplog.clear()
        forget_launchables()
        assert get_launchable(SMALL, cache=tmp_path).remembered


def test_a_database_or_cache_that_fails_does_not_fail_the_call(tmp_path, monkeypatch):
    (tmp_path / "test.db").write_bytes(b"this is no database" * 100)
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    blocked.chmod(0o500)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(blocked / "cache"))
    x, w = arguments(SMALL)
    assert np.isfinite(get_launchable(SMALL, mode="hybrid")(x, w)).all()


def test_cache_off_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_CACHE_ON", "0")
    x, w = arguments(SMALL)
    assert np.isfinite(get_launchable(SMALL)(x, w)).all()
    assert not (tmp_path / "cache").exists()


def test_only_solver(monkeypatch):
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "c_reference")
    assert get_launchable(SMALL).solver == "c_reference"
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "c_nonesuch")
    with pytest.raises(NoSolutionError, match="c_nonesuch"):
        get_launchable(SMALL)
    monkeypatch.delenv("TILESMITH_ONLY_SOLVER")
    assert get_launchable(SMALL, only="c_reference").solver == "c_reference"


def test_a_name_that_no_solver_has(monkeypatch):
    with pytest.raises(NoSolutionError, match=r"'nope' \(asked for by only= or TILESMITH_ONLY_SOLVER\).*c_reference"):
        get_launchable(SMALL, only="nope")


def test_log_cmd_prints_problems_as_commands(monkeypatch, capfd):
    monkeypatch.setenv("TILESMITH_LOG_CMD", "1")
    x, w = arguments(SMALL)
    tilesmith.conv(x, w, padding=1, shared_layout="NHWC")
    tilesmith.conv(x, w, padding=1, shared_layout="NHWC")
    captured = capfd.readouterr()
    (line,) = captured.err.splitlines()
    assert captured.out == ""
    from tilesmith.problems.driver import parse_command

    ((_, signature),) = parse_command(line).signatures
    assert signature.key() == SMALL.key()


def test_targets(monkeypatch):
    for lower in levels.HERE:
        target = replace(lower, cores=2)
        launch = get_launchable(SMALL, target=target)
        assert launch.plan.target == target.name
        assert check_launchable(launch).ok
        with pytest.raises(TargetError, match="disagree"):
            get_launchable(SMALL, target=target, threads=1)
    for arch in set(CPU_TARGETS) - {target.arch for target in levels.HERE}:
        with pytest.raises(TargetError, match="does not run on this machine"):
            get_launchable(SMALL, target=cpu_target(arch))
    assert get_launchable(SMALL, threads=2).plan.threads == 2


def test_bad_requests(monkeypatch, tmp_path):
    with pytest.raises(ArgumentError, match="'quick'"):
        get_launchable(SMALL, mode="quick")
    with pytest.raises(ArgumentError, match="str"):
        get_launchable("conv -n 1")
    for argument in ("only", "database", "cache"):
        with pytest.raises(ArgumentError, match=f"{argument} 5 "):
            get_launchable(SMALL, **{argument: 5})
    monkeypatch.setenv("TILESMITH_FIND_MODE", "quick")
    with pytest.raises(EnvironmentValueError, match="TILESMITH_FIND_MODE"):
        get_launchable(SMALL)
    monkeypatch.delenv("TILESMITH_FIND_MODE")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(NoCompilerError, match="install"):
        get_launchable(SMALL, mode="fast", cache=tmp_path / "cache")


def test_mismatched_tensors_show_both_sides():
    launch = get_launchable(SMALL)
    x, w = arguments(SMALL)
    with pytest.raises(ArgumentError, match=r"\(1, 8, 8, 16\).*\(1, 8, 8, 8\)"):
        launch(x[..., :8].copy(), w)
    with pytest.raises(ArgumentError, match="float32.*float64"):
        launch(x.astype(np.float64), w)
    with pytest.raises(ArgumentError, match="2 tensors.*got 1"):
        launch(x)
    with pytest.raises(ArgumentError, match="list"):
        launch(x.tolist(), w)
    with pytest.raises(ArgumentError, match="meta"):
        launch(torch.from_numpy(x).to("meta"), torch.from_numpy(w))


def test_many_threads_at_once():
    launch = get_launchable(SMALL, threads=2)
    calls = [arguments(SMALL, seed) for seed in range(4)]
    want = [launch(*call) for call in calls]
    wrong = []

    def work(index):
        for _ in range(50):
            if not np.array_equal(launch(*calls[index]), want[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_unrelated_problem_does_not_wait_for_a_search(monkeypatch):
    other = ConvSignature((1, 8, 8, 16), (8, 1, 1, 16), shared_layout="NHWC")
    searching, done = threading.Event(), threading.Event()

    def slow(*args):
        searching.set()
        assert done.wait(30)

    monkeypatch.setattr("tilesmith.dispatch.resolve._measure", slow)
    found = []
    threads = [threading.Thread(target=lambda: found.append(get_launchable(SMALL, mode="hybrid"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert searching.wait(30)
    assert get_launchable(other, mode="fast").signature == other
    assert not found
    done.set()
    for thread in threads:
        thread.join()
    # Those that asked for the same problem waited, and share one launchable.
    assert len(found) == 3
    assert len(set(map(id, found))) == 1


def test_a_failure_lets_the_next_thread_try(monkeypatch):
    with pytest.raises(NoSolutionError):
        get_launchable(SMALL, mode="strict")
    get_launchable(SMALL, mode="hybrid")
    assert get_launchable(SMALL, mode="strict").choice.basis == "database"


def test_trust_verify_takes_a_shipped_answer_over(tmp_path, monkeypatch):
    shipped = tmp_path / "shipped.db"
    get_launchable(SMALL, mode="hybrid", database=shipped)
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{shipped}:{tmp_path / 'user.db'}")
    forget_launchables()
    launch = get_launchable(SMALL, mode="trust_verify")
    assert np.isfinite(launch(*arguments(SMALL))).all()
    held = open_databases().writable.ranking(SMALL.key(), launch.target.name)
    assert held
    assert held[0].ok
    forget_launchables()
    # The user's layer answers from now on, without measuring.
    assert get_launchable(SMALL, mode="trust_verify").choice.layer == str(tmp_path / "user.db")


def test_trust_verify_searches_anew_for_the_solver_that_is_asked_for(tmp_path, monkeypatch):
    shipped = tmp_path / "shipped.db"
    best = get_launchable(SMALL, mode="hybrid", database=shipped)
    reference = get_launchable(SMALL, mode="fast", only="c_reference", database=shipped)
    assert best.solver != reference.solver
    held = open_databases(shipped).writable
    (found,) = [r for r in held.ranking(SMALL.key(), best.target.name) if r.solver == best.solver]
    held.put_result(replace(found, solver=reference.solver, config=reference.config, time_us=1e-3))
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{shipped}:{tmp_path / 'user.db'}")
    monkeypatch.setattr(
        "tilesmith.dispatch.resolve._measure",
        lambda request, strategy: request.layers.writable.put_result(found),
    )
    forget_launchables()
    assert get_launchable(SMALL, mode="trust_verify", only="c_reference").solver == "c_reference"


def test_a_revised_solver_does_not_hand_its_problems_to_the_next(monkeypatch):
    sig = ConvSignature((1, 9, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
    target = get_launchable(sig, mode="hybrid").target
    database = open_databases().writable
    best = database.best(sig.key(), target.name)
    slow = replace(best, solver="c_reference", config="", revision=1, time_us=best.time_us * 50)
    database.put_results([replace(best, revision=best.revision - 1), slow])  # the winner has been revised since
    forget_launchables()
    again = get_launchable(sig, mode="hybrid")
    assert (again.solver, again.choice.basis) == (best.solver, "measurement")
    forget_launchables()
    assert get_launchable(sig, mode="hybrid").choice.basis == "database"
