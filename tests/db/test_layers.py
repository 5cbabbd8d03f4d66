"""Layers: who answers, what comes from a URL, and which other targets are near."""

import functools
import http.server
import logging
import os
import threading
import time
from dataclasses import replace

import pytest

from tilesmith.db.layers import open_layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.targets.names import nearest_first, parse_target

P, T = "conv/1/some-problem", "x86_64-v4:2:zen4"


def record(solver="dense", config="mr=8 nv=2", time_us=10.0, **more):
    return replace(
        Record(P, T, solver, config, time_us=time_us, spread_us=0.1, samples=9, error=0.2, bound=1.0), **more
    )


@pytest.fixture
def server(tmp_path):
    """A folder and the address that serves it."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{service.server_address[1]}"
        service.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def test_answers_come_from_the_highest_layer_down_and_say_so(tmp_path):
    system, team, user = (tmp_path / name for name in ("system.db", "team.db", "user.db"))
    open_database(system).put_result(record("s", time_us=1.0))
    open_database(team).put_result(record("t", time_us=2.0))
    open_database(team).put_result(record("t2", time_us=1.5))
    layers = open_layers([system, team, user], system=1)
    found = layers.answers(P, T)
    assert [(a.record.solver, a.layer, a.role) for a in found] == [
        ("t2", str(team), "team"), ("t", str(team), "team"), ("s", str(system), "system"),
    ]  # fmt: skip
    layers.writable.put_result(record("u", time_us=9.0))
    assert (layers.answers(P, T)[0].record.solver, layers.answers(P, T)[0].role) == ("u", "user")
    assert layers.answers("nothing", T) == ()
    assert [r.solver for r in open_database(user).ranking(P, T)] == ["u"]
    assert [r.solver for r in open_database(team).ranking(P, T)] == ["t2", "t"]
    layers.close()


def test_no_layers_means_memory():
    layers = open_layers([])
    layers.writable.put_result(record())
    assert [(a.layer, a.role) for a in layers.answers(P, T)] == [("memory", "user")]


def test_lower_layers_are_read_in_place_and_see_what_their_owner_adds(tmp_path):
    team, user = tmp_path / "team.db", tmp_path / "user.db"
    owner = open_database(team)
    owner.put_result(record("old"))
    layers = open_layers([team, user])
    assert [a.record.solver for a in layers.answers(P, T)] == ["old"]
    owner.put_result(record("new", time_us=1.0))
    assert [a.record.solver for a in layers.answers(P, T)] == ["new", "old"]


def test_a_url_is_fetched_once_kept_and_asked_for_again_after_a_day(server, tmp_path, monkeypatch, caplog):
    folder, address = server
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    open_database(folder / "team.db").put_result(record("t"))
    url = f"{address}/team.db"
    layers = open_layers([url, tmp_path / "user.db"])
    assert [(a.record.solver, a.layer, a.role) for a in layers.answers(P, T)] == [("t", url, "team")]
    (kept,) = (tmp_path / "cache" / "layers").iterdir()
    open_database(folder / "team.db").put_result(record("t", time_us=5.0))
    assert open_layers([url, tmp_path / "user.db"]).answers(P, T)[0].record.time_us == 10.0
    os.utime(kept, (0, 0))
    assert open_layers([url, tmp_path / "user.db"]).answers(P, T)[0].record.time_us == 5.0
    assert not caplog.records


def test_an_unreachable_url_is_one_warning_and_the_kept_copy(server, tmp_path, monkeypatch, caplog):
    folder, address = server
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    open_database(folder / "team.db").put_result(record("t"))
    url, user = f"{address}/team.db", tmp_path / "user.db"
    open_layers([url, user]).close()
    (folder / "team.db").unlink()
    (kept,) = (tmp_path / "cache" / "layers").iterdir()
    os.utime(kept, (0, time.time() - 3 * 86_400))
    with caplog.at_level(logging.WARNING):
        assert [a.record.solver for a in open_layers([url, user]).answers(P, T)] == ["t"]
    (line,) = caplog.messages
    assert url in line
    assert "its copy of 3 days ago is used" in line
    caplog.clear()
    assert [a.record.solver for a in open_layers([url, user]).answers(P, T)] == ["t"]  # not asked again at once
    assert not caplog.records
    for bad in (f"{address}/gone.db", "s3://bucket/team.db", "http://127.0.0.1:9/x.db", "http://[/"):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert open_layers([bad, user]).answers(P, T) == ()
        (line,) = caplog.messages
        assert bad in line
        assert "it counts as empty" in line
    (folder / "page.db").write_text("<html>")
    caplog.clear()
    assert open_layers([f"{address}/page.db", user]).answers(P, T) == ()
    assert "no SQLite file" in caplog.text


def test_readonly_layers_leave_the_network_alone(server, tmp_path, monkeypatch):
    folder, address = server
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    open_database(folder / "team.db").put_result(record("t"))
    assert open_layers([f"{address}/team.db", tmp_path / "u.db"], readonly=True).answers(P, T) == ()
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "u.db").exists()


def test_a_url_at_the_end_is_read_and_memory_is_written(server, tmp_path, monkeypatch):
    folder, address = server
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    open_database(folder / "team.db").put_result(record("t"))
    layers = open_layers([f"{address}/team.db"])
    assert not layers.writable.persistent
    layers.writable.put_result(record("mine"))
    assert [a.role for a in layers.answers(P, T)] == ["user", "team"]


def test_installed_layers_alone_are_not_written(tmp_path):
    open_database(tmp_path / "s.db").put_result(record("s"))
    layers = open_layers([tmp_path / "s.db"], system=1)
    layers.writable.put_result(record("u"))
    assert [a.role for a in layers.answers(P, T)] == ["user", "system"]
    assert len(open_database(tmp_path / "s.db").ranking(P, T)) == 1


def test_the_nearest_targets_come_first():
    names = [
        "sm_90a:114:h100-pcie", "sm_90a:132:h200", "sm_90a:132:h100-80gb-hbm3", "sm_90a:78:x", "sm_80:108:a100",
        "sm_100a:148:b200", "x86_64-v4:2:zen5", "gfx90a:104", "sm_90a:x", "sm_90a:132:H 100", "",
    ]  # fmt: skip
    assert nearest_first(parse_target("sm_90a:132:h200"), names) == (
        "sm_90a:132:h100-80gb-hbm3", "sm_90a:114:h100-pcie", "sm_90a:78:x", "sm_100a:148:b200", "sm_80:108:a100",
    )  # fmt: skip
    assert nearest_first(parse_target("sm_86:84"), ["sm_89:142", "sm_80:108", "sm_90a:132", "sm_86:46"]) == (
        "sm_86:46", "sm_80:108", "sm_89:142", "sm_90a:132",
    )  # fmt: skip
    cpus = ["x86_64-v4:8:zen5", "x86_64-v4:1:zen4", "x86_64-v4:1:zen5", "x86_64-v3:2:zen5", "aarch64:2", "sm_90a:132"]
    assert nearest_first(parse_target("x86_64-v4:2:zen5"), cpus) == (
        "x86_64-v4:1:zen5", "x86_64-v4:1:zen4", "x86_64-v4:8:zen5", "x86_64-v3:2:zen5", "aarch64:2",
    )  # fmt: skip


def test_answers_of_near_targets_are_grouped_by_target(tmp_path):
    team, user = tmp_path / "team.db", tmp_path / "user.db"
    open_database(team).put_result(record("t", target="x86_64-v4:8:zen5"))
    open_database(user).put_result(record("u", target="x86_64-v4:4:zen5"))
    open_database(user).put_result(record("own"))
    layers = open_layers([team, user])
    groups = layers.near(P, parse_target(T))
    assert [[(a.record.solver, a.record.target, a.role) for a in group] for group in groups] == [
        [("u", "x86_64-v4:4:zen5", "user")], [("t", "x86_64-v4:8:zen5", "team")],
    ]  # fmt: skip
    assert layers.near("nothing", parse_target(T)) == ()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_without_answers_is_read_again_once_it_changes(tmp_path, monkeypatch, readonly):
    theirs = open_database(tmp_path / "one.db")
    layers = open_layers([tmp_path / "one.db"], readonly=readonly)
    target = parse_target("x86_64-v3:2")
    asked = []
    rows = type(layers.databases[0])._rows
    monkeypatch.setattr(type(theirs), "_rows", lambda self, *query: asked.append(query) or rows(self, *query))
    for _ in range(3):
        assert not layers.answers("p", target.name)
        assert not layers.near("p", target)
        assert not layers.neighbours("p", target.name)
    assert len(asked) == 1
    theirs.put_result(record(problem="p", target=target.name))
    assert [answer.record.solver for answer in layers.answers("p", target.name)] == ["dense"]
    theirs.put_result(record(problem="p", target=target.name, solver="wrw", time_us=5.0))
    assert [answer.record.solver for answer in layers.answers("p", target.name)] == ["wrw", "dense"]


def test_what_memory_holds_in_place_of_a_file_without_answers_is_found(tmp_path, caplog):
    layers = open_layers([tmp_path / "one.db"])
    assert not layers.answers("p", "t")
    layers.databases[0]._degrade(OSError("the disk is gone"))
    layers.writable.put_result(record(problem="p", target="t"))
    assert not open_layers([tmp_path / "one.db"]).answers("p", "t")
    assert [answer.record.solver for answer in layers.answers("p", "t")] == ["dense"]
