"""A small part of ``make sweep``."""

from __future__ import annotations

from dataclasses import replace

import levels
from sweep import sweep

COUNT = 4  # problems of each level


def test_random_problems_on_every_solver(level):
    start = 1 + levels.HERE.index(level)  # other problems on each level
    report = sweep(COUNT, start, (replace(level, cores=2),))
    assert report.signatures == report.runs["c_reference"] == COUNT
    assert not report.failures, "\n".join(report.failures)
