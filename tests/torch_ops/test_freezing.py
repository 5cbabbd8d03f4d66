"""Parameters that are constants of a compiled graph: each call sees whether they are the same, unchanged."""

from __future__ import annotations

import pytest
import torch

from tilesmith.torch_ops.compile.freezing import _Held


def parameters() -> list[torch.Tensor]:
    with torch.inference_mode():
        made_there = torch.ones(3)
    return [torch.nn.Parameter(torch.ones(2)), made_there, torch.ones(4)]


def test_the_same_parameters_are_held():
    own = parameters()
    assert _Held(own, print).holds(list(own))


@pytest.mark.parametrize("place", range(3))
def test_another_tensor_is_seen(place):
    own = parameters()
    given = list(own)
    given[place] = own[place].clone()
    assert not _Held(own, print).holds(given)


@pytest.mark.parametrize("place", [0, 2])
def test_a_change_in_place_is_seen(place):
    own = parameters()
    held = _Held(own, print)
    with torch.no_grad():
        own[place].add_(1)
    assert not held.holds(own)


@pytest.mark.parametrize("place", range(3))
def test_other_memory_is_seen(place):
    """``.data = `` counts no change."""
    own = parameters()
    held = _Held(own, print)
    with torch.inference_mode():
        own[place].data = torch.ones(own[place].shape)
    assert not held.holds(own)
