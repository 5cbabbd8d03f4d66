"""A small part of ``make sweep``."""

from __future__ import annotations

from dataclasses import replace

import levels
from sweep import sweep


def test_random_problems_on_every_solver(level):
    start = 1 + levels.HERE.index(level)  # other problems on each level
    report = sweep(15, start, (replace(level, cores=2),))
    assert report.signatures == 15
    assert report.runs["c_reference"] == 15
    assert not report.failures, "\n".join(report.failures)
