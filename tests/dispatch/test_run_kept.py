"""The look-up of calls that were met before, in C: what it runs, what it leaves, and what it refuses."""

import numpy as np
import pytest
import torch

from tilesmith.errors import ArgumentError
from tilesmith.runtime._runtime import run_kept

PLAIN, RECORDED, OTHER = range(3)
X, W, B = torch.ones(2, 3), torch.ones(3), torch.ones(1)
OPTIONS = (1, "same")


def key(w, b=None, options=OPTIONS):
    return id(w), b is None, options


def ask(x, w, *b, by_filter=None, with_gradients=None, recording=True, options=OPTIONS, types=(torch.Tensor,)):
    tables = {} if by_filter is None else by_filter, {} if with_gradients is None else with_gradients
    return run_kept(set(types), *tables, lambda: recording, options, x, w, *b)


def test_a_call_without_gradients_is_found_by_its_filter():
    kept = {key(W): lambda x, w: (x, w), key(W, B): lambda x, w, b: (x, w, b)}
    assert ask(X, W, by_filter=kept) == (X, W)
    found = ask(X, W, B, by_filter=kept)
    assert all(one is other for one, other in zip(found, (X, W, B), strict=True))
    assert ask(X, W.clone(), by_filter=kept) == PLAIN
    assert ask(X, W, by_filter=kept, options=(2, "same")) == PLAIN
    assert ask(X, W, with_gradients={key(W): (2, print)}) == PLAIN
    array = np.ones(3)
    assert ask(np.ones(2), array, by_filter={key(array): lambda x, w: w}) is array


def test_a_filter_that_meets_several_problems_is_noted():
    def refuses(x, w):
        raise ArgumentError("another shape")

    kept = {key(W): refuses}
    assert ask(X, W, by_filter=kept) == PLAIN
    assert kept == {key(W): None}
    assert ask(X, W, by_filter=kept) == PLAIN


def test_a_call_with_gradients_has_as_many_axes():
    w = W.clone().requires_grad_()
    kept = {key(w): (2, lambda x, w: w)}
    assert ask(X, w, with_gradients=kept) is w
    assert ask(X, w, with_gradients={key(w): (3, print)}) == RECORDED
    assert ask(X, w) == RECORDED
    assert ask(X, w, with_gradients=kept, recording=False) == PLAIN
    bias = B.clone().requires_grad_()
    assert ask(X, W, bias) == RECORDED
    with torch.autograd.forward_ad.dual_level():  # what watches the thread sees operators alone
        assert ask(X, w, with_gradients=kept) == RECORDED


def test_other_calls_are_left_to_their_caller():
    class Mine(torch.Tensor):
        pass

    kept = {key(W): print}
    assert ask(X.as_subclass(Mine), W, by_filter=kept) == OTHER
    assert ask("x", W, by_filter=kept) == OTHER
    with torch.autocast("cpu"):
        assert ask(X, W, by_filter=kept) == OTHER


def test_what_a_kept_call_raises_is_raised():
    def breaks(x, w):
        raise ZeroDivisionError("mine")

    w = W.clone().requires_grad_()
    with pytest.raises(ZeroDivisionError, match="mine"):
        ask(X, W, by_filter={key(W): breaks})
    with pytest.raises(ArgumentError):
        ask(X, w, with_gradients={key(w): (2, lambda x, w: ask_and_raise())})


def ask_and_raise():
    raise ArgumentError("refused")


def test_a_table_that_empties_itself_while_its_call_runs():
    kept = {}

    def empties(x, w):
        kept.clear()
        return "done"

    kept[key(W)] = empties
    del empties
    assert ask(X, W, by_filter=kept) == "done"


@pytest.mark.parametrize(
    "given",
    [
        (),
        (set(), {}, {}, print, OPTIONS, X),
        ({torch.Tensor}, [], {}, print, OPTIONS, X, W),
        ({torch.Tensor}, {}, None, print, OPTIONS, X, W),
        ({torch.Tensor}, {}, {}, print, [], X, W),
        ({torch.Tensor}, {}, {}, None, OPTIONS, X, W.clone().requires_grad_()),
        ({torch.Tensor}, {}, {}, print, OPTIONS, X, W, B, B),
        ({torch.Tensor}, {key(W): 1}, {}, print, OPTIONS, X, W),
        ([torch.Tensor], {}, {}, print, OPTIONS, X, W),
        ({torch.Tensor}, {}, {}, print, OPTIONS, X, "w"),
    ],
)
def test_other_arguments_raise(given):
    with pytest.raises((TypeError, AttributeError, SystemError)):
        run_kept(*given)


@pytest.mark.parametrize("pair", [None, 5, (2,), (2, print, 3), [2, print]])
def test_a_table_of_recorded_calls_holds_pairs(pair):
    w = W.clone().requires_grad_()
    if pair is None:
        assert ask(X, w, with_gradients={key(w): pair}) == RECORDED
        return
    with pytest.raises(TypeError, match="pairs"):
        ask(X, w, with_gradients={key(w): pair})
