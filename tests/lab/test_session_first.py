"""Searches of the laboratory begin with the configs that they are given."""

from __future__ import annotations

from types import SimpleNamespace

from tilesmith.lab import session
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.detect import host_target

FIRST = (("naive", ""), ("other", "a=1"))


def test_a_search_begins_with_what_it_is_given(place, monkeypatch):
    asked = []
    monkeypatch.setattr(session, "tune", lambda *_, **words: asked.append(words["first"]))
    here = session.Session(session.Place(host_target(1), "cpu", (), ()))
    workers = SimpleNamespace()
    here.tune(GemmSignature(8, 8, 8), workers, first=FIRST)
    here.tune(GemmSignature(8, 8, 8), workers)
    assert asked == [FIRST, ()]
