"""PyTorch's own inputs for its module tests (``module_db``), on layers that ``optimize`` has replaced."""

import copy
import pickle
import sys
import types
import unittest

import pytest
import torch
from torch import nn

import tilesmith
from tilesmith.torch_ops.modules.layers import REPLACED

# PyTorch's test modules import it for a base class of tests that are not run here.
sys.modules.setdefault("expecttest", types.ModuleType("expecttest")).__dict__.setdefault("TestCase", unittest.TestCase)
from torch.testing._internal.common_modules import module_db  # noqa: E402

KINDS = (*REPLACED, nn.LazyConv2d, nn.LazyConvTranspose2d, nn.LazyLinear)
INFOS = {info.name: info for info in module_db if info.module_cls in KINDS}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def cases(name, dtype, training=True):
    """A module as PyTorch makes it, one that ``optimize`` returned, and the arguments of a call."""
    info = INFOS[name]
    for case in info.module_inputs_func(info, "cpu", dtype, True, training):
        given, call = case.constructor_input, case.forward_input
        theirs = info.module_cls(*given.args, **{"dtype": dtype, **given.kwargs}).train(training)
        if getattr(theirs, "cls_to_become", None) is not None:
            theirs(*call.args, **call.kwargs)
        ours = tilesmith.optimize(copy.deepcopy(theirs), inplace=True)
        args = call.args or (call.kwargs["input"],)
        yield theirs, ours, args, {k: v for k, v in call.kwargs.items() if k != "input"}, case.reference_fn


def outcome(layer, x):
    """The result of a call, or what it raises."""
    try:
        return layer(x)
    except Exception as error:
        return error


def leaves(values):
    return [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]


def fresh(args):
    return [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]


def test_all_classes_are_here():
    assert {INFOS[name].module_cls for name in INFOS} >= set(REPLACED)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", INFOS)
def test_results_and_gradients(name, training):
    for theirs, ours, args, kwargs, reference in cases(name, torch.float64, training):
        assert type(ours) is REPLACED[type(theirs)]
        mine, yours = fresh(args), fresh(args)
        found, want = ours(*mine, **kwargs), theirs(*yours, **kwargs)
        torch.testing.assert_close(found, want)
        assert found.stride() == want.stride()
        if reference is not None:
            torch.testing.assert_close(found, reference(theirs, *yours, **kwargs))
        dy = torch.randn_like(want)
        found.backward(dy)
        want.backward(dy)
        pairs = zip([*leaves(mine), *ours.parameters()], [*leaves(yours), *theirs.parameters()], strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one.grad, other.grad)
        with torch.no_grad():
            torch.testing.assert_close(ours(*mine, **kwargs), want)


@pytest.mark.parametrize("name", INFOS)
def test_gradients_by_differences(name):
    for _, ours, args, kwargs, _ in list(cases(name, torch.float64))[:3]:
        parameters = list(ours.parameters())

        def call(x, *_, ours=ours, args=args, kwargs=kwargs):
            return ours(x, *args[1:], **kwargs)

        small = args[0].detach().requires_grad_()
        assert torch.autograd.gradcheck(call, (small, *parameters), fast_mode=True)
        assert torch.autograd.gradgradcheck(call, (small, *parameters), fast_mode=True)


@pytest.mark.parametrize("name", INFOS)
def test_copies_print_and_load_as_pytorchs(name):
    for theirs, ours, args, kwargs, _ in list(cases(name, torch.float32))[:2]:
        assert repr(ours) == repr(theirs)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            again.load_state_dict(theirs.state_dict())
            torch.testing.assert_close(again(*args, **kwargs), theirs(*args, **kwargs))


@pytest.mark.parametrize("name", [name for name in INFOS if "2d" in name or "3d" in name])
def test_memory_formats(name):
    for theirs, ours, args, kwargs, _ in list(cases(name, torch.float32))[:4]:
        x, last = args[0].detach(), LAST[theirs.weight.dim()]
        inputs = [x, x.to(memory_format=last)] if x.dim() == theirs.weight.dim() else [x]
        for of_module in (torch.contiguous_format, last):
            for lying in inputs:
                found, want = (each.to(memory_format=of_module)(lying, **kwargs) for each in (ours, theirs))
                torch.testing.assert_close(found, want)
                assert x.dim() < theirs.weight.dim() or found.stride() == want.stride()


@pytest.mark.parametrize("name", INFOS)
def test_strided_and_wrong_inputs(name):
    for theirs, ours, args, kwargs, _ in list(cases(name, torch.float32))[:2]:
        x = args[0].detach()
        wide = torch.stack([x, x], -1)[..., 0]
        torch.testing.assert_close(ours(wide, *args[1:], **kwargs), theirs(wide, *args[1:], **kwargs))
        for wrong in (x.double(), x[..., :0], torch.cat([x, x], -2), x.flatten(), x.to(torch.int32)):
            found, want = (outcome(layer, wrong) for layer in (ours, theirs))
            assert type(found) is type(want)
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(found, want)
            else:
                assert str(found) == str(want)
