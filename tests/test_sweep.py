"""A small part of ``make sweep``."""

from __future__ import annotations

import pytest

from sweep import host_targets, sweep


@pytest.mark.parametrize("start", [1, 2])
def test_random_problems_on_every_solver(start):
    report = sweep(30, start, host_targets()[start - 1 :])
    assert report.signatures == 30
    assert report.runs["c_reference"] == 30
    assert not report.failures, "\n".join(report.failures)
