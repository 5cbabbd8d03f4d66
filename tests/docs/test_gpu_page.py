"""The tables of the GPU page are those of the result files, by the script that writes them."""

import json
import sys

import pytest
from pages import DOCS, ROOT

from tilesmith.measure.machine import roofline_seconds, sheet_machine
from tilesmith.problems.driver import parse_command
from tilesmith.targets.names import parse_target

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
import bounds
import tables

PAGES = tables.pages()


def test_every_card_has_a_page():
    assert sorted(PAGES.values()) == tables.results()
    assert DOCS / "benchmarks-gpu.md" in PAGES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_page_is_what_the_results_say(path):
    assert path.read_text() == tables.rendered(path, PAGES[path]), "run python benchmarks/gpu/tables.py"


@pytest.mark.parametrize("path", PAGES.values(), ids=lambda path: path.stem)
def test_stored_rooflines_are_those_of_the_data_sheet(path):
    """The share of the roofline follows from the problem, the time and the card; nothing else may set it."""
    stored = json.loads(path.read_text())
    target = parse_target(stored["target"])
    machine = sheet_machine(target, "", "")
    for each in (row for rows in stored["lists"].values() for row in rows if row["bench"]["status"] == "ok"):
        signature = dict(parse_command(each["command"]).signatures)[each["direction"]]
        share = roofline_seconds(signature, target, machine) / each["bench"]["time_us"] * 1e6
        assert each["bench"]["roofline"] == pytest.approx(share, rel=1e-6), each["command"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_picture_shows_these_results(path):
    picture, date = tables.plot_of(PAGES[path]), json.loads(PAGES[path].read_text())["machine"]["date"]
    assert f"results of {date}" in picture.read_text()
    assert f"(images/{picture.name})" in path.read_text()


def row(command, ratio, external=None, **bench):
    measured = {
        "status": "ok", "reason": "", "solver": "s", "time_us": 10.0, "spread_us": 0.1, "gflops": 2e3, "roofline": 0.7,
        "against": {"cudnn": {"time_us": 10 * ratio, "spread_us": 0.1}}, "ratio": {"cudnn": ratio},
    } | bench  # fmt: skip
    tune = {"speedup": 1.25, "seconds": 6.0, "trials": 9}
    beside = external and {"ratio": {"cudnn": external}}
    return {"command": command, "direction": "fwd", "tune": tune, "bench": measured, "external": beside}


CONV = "convbfp16 -n 2 -c {c} -H 9 -W 8 -k 16 -y 3 -x 3 -u 2 -g {g} -F 1"


def test_figures():
    rows = [row(CONV.format(c=8, g=1), 1.44), row(CONV.format(c=8, g=1), 0.9, external=1.0)]
    found = tables.figures(rows)
    assert (found["problems"], found["failed"], found["below"]) == (2, 0, 1)
    assert found["geomean"] == pytest.approx((1.44 * 0.9) ** 0.5)
    assert found["least"] == 0.9
    assert found["least_with_external"] == 1.0
    assert found["roofline"] == pytest.approx(0.7)
    assert found["library_roofline"] == pytest.approx((0.7 / 1.44 * 0.7 / 0.9) ** 0.5)
    assert found["untuned"] == pytest.approx(0.8)
    assert found["searched"] == 2
    alone = row(CONV.format(c=8, g=1), 0.5) | {"tune": {"speedup": 1.0, "seconds": 3.0, "trials": 1}, "raced": False}
    with_alone = tables.figures([*rows, alone])
    assert (with_alone["least"], with_alone["least_with_external"]) == (0.5, 1.0)  # nothing raced, nothing to say
    assert (with_alone["untuned"], with_alone["searched"]) == (pytest.approx(0.8), 2)
    failed = tables.figures([*rows, row(CONV.format(c=8, g=1), 1.0, status="failed")])
    assert (failed["failed"], failed["least"]) == (1, 0.9)


def test_several_passes_show_our_median_and_the_fastest_of_the_library():
    def measured(ours, single, theirs, theirs_single):
        against = {"cudnn": {"time_us": theirs, "spread_us": 0.1, "single_us": theirs_single}}
        return {"time_us": ours, "single_us": single, "against": against}

    first = row(CONV.format(c=8, g=1), 2.0, **measured(10.0, 13.0, 20.0, 26.0))
    first["again"] = [measured(12.5, 15.0, 18.0, 27.0), measured(14.0, 14.0, 19.0, 21.0)]
    (found,) = tables.merged([first])
    assert found["bench"]["time_us"] == 12.5
    assert tables.ratio(found) == 18.0 / 12.5
    assert tables.single(found) == 21.0 / 14.0
    assert found["bench"]["roofline"] == pytest.approx(0.7 * 10 / 12.5)
    lines = tables.summary({"some": [found], "networks": [found]})
    assert any(line.startswith("| `networks` (later) | 1 |") for line in lines)
    assert any(line.startswith("| all convolutions of the first lists | 1 |") for line in lines)


def test_the_library_on_operands_as_given_is_shown_apart():
    def measured(given, given_single):
        against = {"cudnn": {"time_us": 20.0, "single_us": 24.0, "given_us": given, "given_single_us": given_single}}
        return {"time_us": 10.0, "single_us": 12.0, "against": against}

    first = row(CONV.format(c=3, g=1), 2.0, **measured(80.0, 90.0)) | {"again": [measured(60.0, 96.0)]}
    (found,) = tables.merged([first])
    assert (tables.ratio(found), tables.as_given(found), tables.as_given(found, single=True)) == (2.0, 6.0, 7.5)
    without = row(CONV.format(c=3, g=1), 2.0)
    assert tables.as_given(without) is None
    assert tables.figures([found, without])["given"] == pytest.approx(6.0)
    assert tables.as_given(row(CONV.format(c=3, g=1), 2.0, **measured(60.0, 96.0), status="disturbed")) is None


def test_the_share_of_what_a_card_sustains():
    """A large 1x1 layer at the roofline of 790 TFLOP/s, and one at that of 4.3 TB/s."""
    products, few = 2 * 64 * 56 * 56 * 2048 * 2048, 64 * 56 * 56 * (64 + 8) * 2 + 64 * 8 * 2
    line = "convbfp16 -n 64 -c {c} -H 56 -W 56 -k {k} -y 1 -x 1 -g 1 -F 1"
    for c, k, seconds in ((2048, 2048, products / 790e12), (64, 8, few / 4.3e12)):
        measured = row(line.format(c=c, k=k), 1.0, time_us=seconds * 2e6) | {"target": "sm_90a:132:h200"}
        assert tables.sustained(measured) == pytest.approx(0.5)
    assert tables.sustained(row(CONV.format(c=8, g=1), 1.0)) is None


def test_searches_that_ended_behind_the_untuned_choice_are_named():
    good = row(CONV.format(c=8, g=1), 1.5)
    bad = row(CONV.format(c=8, g=1), 0.9) | {"tune": {"speedup": 0.9, "seconds": 4.0, "trials": 6}}
    text = "\n".join(tables.cut_short_lines({"some": [good, bad]}))
    assert text.startswith("1 of the searches")
    assert f"- `some` {tables.short(bad)}: 0.90, 1.00" in text
    assert tables.cut_short_lines({"some": [good]}) == []


def test_problems_that_constants_were_fitted_on_are_marked():
    from gpu_cases import listed

    marks = {
        name: [tables.is_fitted({"command": c, "direction": d}) for c, d, _ in listed(name)]
        for name in ("grouped", "networks")
    }
    assert all(marks["grouped"])
    assert not any(marks["networks"])


def test_disturbed_rows_are_counted_and_in_no_figure():
    import gpu_search as search

    rows = [row(CONV.format(c=8, g=1), 1.44), row(CONV.format(c=8, g=1), 429.0, status="disturbed", reason="late")]
    rows.append(row(CONV.format(c=8, g=1), 1.0, external=9.7))
    rows[2]["external"]["status"] = "disturbed"
    found = tables.figures(rows)
    assert (found["problems"], found["failed"], found["disturbed"]) == (3, 0, 1)
    assert found["geomean"] == pytest.approx(1.2)
    assert found["with_external"] == pytest.approx(1.44)
    assert "| disturbed: late |" in "\n".join(tables.problems("some", rows))
    searched = {"us": {"fast": 12.0, "tuned": 10.0}, "tuned_seconds": 4.0, "tuned_trials": 9}
    noise = searched | {"us": {"fast": 900.0, "tuned": 1.0}, "disturbed": 7}
    found = search.summary([searched, noise])
    assert (found["problems"], found["disturbed"], found["untuned_over_tuned"]) == (1, 1, pytest.approx(1.2))
    assert search.summary([noise]) == {"problems": 0, "disturbed": 1}


def test_disturbed_rows_of_a_cpu_are_counted_and_in_no_figure(monkeypatch):
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import cpu

    command = "conv -n 1 -c 8 -H 9 -W 9 -k 8 -y 3 -x 3 -u 1 -g 1 -F 1"
    good = {
        "command": command, "direction": "fwd", "status": "ok", "reason": "", "solver": "s", "time_us": 1.0,
        "spread_us": 0.1, "prepare_us": 0.0, "gflops": 1.0, "roofline": 0.5, "against": {"onednn": {"time_us": 2.0}},
        "ratio": {"onednn": 2.0},
    }  # fmt: skip
    noise = good | {"status": "disturbed", "reason": "other processes", "ratio": {"onednn": 429.0}}
    host = dict.fromkeys(("date", "cpu", "cores", "load", "onednn", "compiler", "method"), "x")
    # What an older version of bench has summed up is not read.
    data = {"host": host, "target": "x:1", "results": [good, noise], "summary": {"geomean": {"onednn": 29.3}}}
    text = cpu.table("fp32_t1", data)
    assert "Geomean **2.000**, least 2.000. 1 of 2 left out." in text
    assert "| disturbed: other processes |" in text
    assert "No ratio. 1 of 1 left out." in cpu.table("fp32_t1", data | {"results": [noise]})


def test_tables_tell_dense_layers_apart_and_name_problems():
    rows = [row(CONV.format(c=3, g=1), 2.0), row(CONV.format(c=16, g=16), 2.0), row(CONV.format(c=8, g=1), 2.0)]
    lines = tables.summary({"some": rows})
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| `some`", "3"], ["| `some`, dense, 8 channels and more", "1"]
    ]  # fmt: skip
    assert tables.short(rows[1]) == "fwd conv 3x3 s2 g16 2x16x9x8 -> 16"
    assert tables.short({"command": "gemmbfp16 --a_h 2 --a_w 3 --b_w 4 --transB 1"}) == "gemm nt 2x4x3"
    text = "\n".join(tables.problems("some", [*rows, row(CONV.format(c=8, g=1), 1.0, status="failed", reason="why")]))
    assert "| fwd conv 3x3 s2 2x3x9x8 -> 16 | 2.00 | 10.0 | 20.0 | | 2.0 | 0.70 | s |" in text.replace("  ", " ")
    assert "| failed: why |" in text


def test_every_list_has_a_place():
    import bench as gpu_bench
    from gpu_cases import list_names, listed

    assert set(gpu_bench.LISTS) == set(list_names()) - {"demo", "demo_gpu", "cpu_fp32"}
    for name in gpu_bench.LISTS:
        for command, direction, _ in listed(name):
            assert tables.short({"command": command, "direction": direction})


def test_searches_and_checks_have_their_tables():
    import checks
    import gpu_search as search

    rows = [
        {"us": dict(zip(("fast", "tuned", "long"), us, strict=True)), "tuned_seconds": seconds, "tuned_trials": trials,
         "long_trials": 10 * trials}
        for us, seconds, trials in (((12.0, 10.0, 10.0), 4.0, 40), ((10.0, 10.0, 9.0), 6.0, 60))
    ]  # fmt: skip
    found = search.summary(rows)
    assert found["untuned_over_tuned"] == pytest.approx(1.2**0.5)
    assert found["tuned_over_long_worst"] == pytest.approx(10 / 9)
    about = {"date": "2026", "gpus": 4, "gpu": "card", "command": "make x"}
    text = "\n".join(tables.search_lines({**about, "summary": found}))
    assert "| configs measured, median | 50 |" in text
    assert "(500 configs), geomean (worst) | 1.054 (1.11) |" in text
    assert tables.search_lines({**about, "summary": search.summary([])}) == []

    tests = [
        {"name": "a", "part": "list boo", "ok": True, "checks": 2, "solver": "wgmma_conv", "replayed": True},
        {"name": "b", "part": "list boo", "ok": False, "checks": 2, "solver": "cuda_reference", "replayed": False,
         "reference": True, "message": "left to the reference solver"},
        {"name": "c", "part": "kernels", "ok": True, "left_out": "no other config"},
        {"name": "runtime: host time of a bound call", "part": "runtime", "ok": True, "ratio": 0.54, "ours": 8.4,
         "torch": 15.5},
    ]  # fmt: skip
    data = checks.summarized(tests) | {"left": 1, "too_large": 2} | about
    text = "\n".join(tables.check_lines(data))
    assert "| list boo | 1 | 1 | 4 |" in text
    assert "left to the reference solver: 1; left out as too large: 2; not reached: 1" in text
    assert "replay was right: 1 of 2" in text
    assert "0.54 (8.4 us over 15.5 us)" in text
    assert [row["name"] for row in data["failures"]] == ["b"]


def test_a_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    import bench as gpu_bench
    from gpu_cases import listed

    monkeypatch.setattr(gpu_bench, "facts", lambda command: {"command": command})
    monkeypatch.setattr(gpu_bench, "cuda_target_of", lambda ordinal: type("T", (), {"name": "sm_90a:132"}))
    path = tmp_path / "results.json"
    results = gpu_bench.Results(path, "make gpu-bench")
    (command, direction, _), (second, other, _) = listed("boo")[:2]
    task, later = ({"command": words, "direction": way} for words, way in ((command, direction), (second, other)))
    answer = {key: value for key, value in row(command, 1.5).items() if key not in ("command", "direction")}
    results.add("boo", task, answer | {"about": {"cudnn": "cuDNN 9"}})
    results.add("boo", later, {"bench": {"status": "failed", "reason": "the process ended with -9", "ratio": {}}})
    results.spent(20.0, 2, 4)
    results.write()
    again = gpu_bench.Results(path, "make gpu-bench")
    assert again.has("boo", command, direction)
    assert not again.has("boo", second, other)
    again.add("boo", task, {"bench": {"status": "failed", "reason": "later", "ratio": {}}})
    assert again.has("boo", command, direction)  # a run that fails loses nothing
    searched = {"trials": 9, "speedup": 1.0, "seconds": 2.0}
    again.add("boo", task, answer | {"tune": searched | {"ended": "budget"}})
    again.add("boo", later, answer | {"tune": searched | {"ended": "converged"}})
    again.write()
    short = gpu_bench.Results(path, "make gpu-bench", 10)
    assert not short.has("boo", command, direction)
    assert short.has("boo", second, other)
    again = gpu_bench.Results(path, "make gpu-bench", 9)
    assert again.has("boo", command, direction)
    results.write()
    held = json.loads(path.read_text())
    assert held["cudnn"] == "cuDNN 9"
    assert held["wall"] == [{"seconds": 20.0, "problems": 2, "devices": 4}]
    monkeypatch.setattr(gpu_bench, "generator_digest", lambda _: "another")
    other_version = gpu_bench.Results(path, "make gpu-bench")
    assert not other_version.has("boo", command, direction)
    assert not other_version.lacked_time("boo", command, direction)
    held["lists"]["boo"][0]["tune"] = {"speedup": 0.8}
    path.write_text(json.dumps(held))
    assert gpu_bench.Results(path, "make gpu-bench").lacked_time("boo", command, direction)


HAND = """
import json, os, sys, time
sys.path.insert(0, {folder!r})
from workers import keep_to_my_cores, tasks_of_stdin
keep_to_my_cores()
for task in tasks_of_stdin():
    if task["name"] == "crash":
        os.abort()
    if task["name"] == "hang":
        time.sleep(60)
    print(json.dumps({{"answer": task["name"], "device": os.environ["CUDA_VISIBLE_DEVICES"]}}), flush=True)
"""


def test_a_process_that_dies_or_hangs_costs_its_task_alone(tmp_path, monkeypatch):
    import workers

    monkeypatch.setattr(workers, "START_S", 5.0)
    script = tmp_path / "hand.py"
    script.write_text(HAND.format(folder=str(ROOT / "benchmarks" / "gpu")))
    tasks = [{"name": name} for name in ("a", "crash", "b", "hang", "c", "d", "e", "never")]
    found = {}
    left = workers.WorkerPool(script, 2, tmp_path / "log", 1.0).work(
        tasks, lambda ordinal, task, answer: found.update({task["name"]: answer}), lambda task: task["name"] != "never"
    )
    assert left == [{"name": "never"}]
    assert found.pop("crash") == {"died": "the process ended with -6"}
    assert "gave no result" in found.pop("hang")["died"]
    assert {name: answer["answer"] for name, answer in found.items()} == {name: name for name in "abcde"}
    assert {answer["device"] for answer in found.values()} <= {"0", "1"}


def test_bounds_raise_the_rows_that_are_below():
    """A row at 0.5 of the roofline (5 of 10 us) and one at 0.9; what is there already stays."""
    rows = [row(CONV.format(c=16, g=1), 1.5, roofline=0.5), row(CONV.format(c=16, g=1), 2.0, roofline=0.9)]
    assert bounds.raised(rows, 0.0) == [1.5, 2.0]
    assert bounds.raised(rows, 0.8) == pytest.approx([1.5 * 1.6, 2.0])
    assert bounds.raised(rows, 1.0) == pytest.approx([3.0, 2.0 / 0.9])
    assert bounds.raised(rows, 0.8, start=2.0) == pytest.approx([1.5 * 10 / (5 / 0.8 + 2), 2.0])
    assert [gain for gain, _ in bounds.gains(rows, 0.8)] == pytest.approx([1.6**0.5, 1.0])
