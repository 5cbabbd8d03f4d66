"""Models whose graphs are easily wrong: results and side effects must stay those of the model's own code."""

import copy
from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from small_nets import filled, image
from torch import nn
from torch.nn import functional

import tilesmith


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
        self.gain = nn.Parameter(torch.ones(1))


class InputChangedInPlace(Base):
    def forward(self, x):
        y = self.bn(self.a(x))
        z = functional.relu_(x)  # after the layer has read x
        return y + z


class SumChangesTheInput(Base):
    def forward(self, x):
        x += self.a(x)
        return x * x


class AliasOfTheInput(Base):
    def forward(self, x):
        y = torch.relu(self.a(x))
        before = y
        y += self.bn(self.b(x))
        return y * before


class BroadcastSum(Base):
    def forward(self, x):
        return torch.relu(self.a(x) + x.mean((2, 3), keepdim=True))


class SumOfTwo(Base):
    def forward(self, x):
        return torch.relu(self.bn(self.a(x)) + self.b(x)) + self.b(x)


class ReadTwice(Base):
    def forward(self, x):
        y = self.a(x)
        return torch.relu(self.bn(y)) * y


class UsedTwice(Base):
    def forward(self, x):
        return torch.sigmoid(self.a(torch.relu(self.bn(self.a(x)))))


class WithDefaults(Base):
    def forward(self, x, mask=None, scale=1.0):
        y = torch.relu(self.bn(self.a(x)))
        return y * scale if mask is None else y * mask * scale


class Doubled(Base):
    def forward(self, x):
        y = self.a(x)
        return torch.relu(self.bn(y + y))


class Buffers(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.full((4, 1, 1), 0.5))
        self.scale = 2.0

    def forward(self, x):
        return torch.relu(self.bn(self.a(x))) * self.gain * self.scale + self.shift.mul(2)


GRAPHS = [
    InputChangedInPlace, SumChangesTheInput, AliasOfTheInput, BroadcastSum, SumOfTwo, ReadTwice, UsedTwice,
    WithDefaults, Doubled, Buffers,
]  # fmt: skip


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_as_the_models_own_code(make):
    model, x = filled(make()), image(2, 4, 5, 5)
    fast, mine, theirs = tilesmith.optimize(model), x.clone(), x.double()
    with torch.no_grad():
        found, want = fast(mine), copy.deepcopy(model).double()(theirs)
    torch.testing.assert_close(found.double(), want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)
    assert any(layer.why for layer in tilesmith.report_of(fast).layers) == (
        make not in (SumChangesTheInput, Doubled, ReadTwice)
    )


def test_arguments_with_defaults_and_names():
    model, x = filled(WithDefaults()), image(2, 4, 5, 5)
    fast, mask = tilesmith.optimize(model), image(2, 4, 5, 5, seed=2)
    with torch.no_grad():
        for args, kwargs in (((x,), {}), ((), {"x": x}), ((x, mask), {}), ((x,), {"scale": 3.0})):
            torch.testing.assert_close(fast(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-4)


def test_attributes_and_buffers_that_change():
    model, x = filled(Buffers()), image(2, 4, 5, 5)
    fast = tilesmith.optimize(model)
    with torch.no_grad():
        before = fast(x)
        fast.scale = 5.0
        fast.shift.fill_(-1)
        assert not torch.equal(before, fast(x))
        torch.testing.assert_close(fast(x), tilesmith.restore(copy.deepcopy(fast))(x), rtol=1e-4, atol=1e-4)


class Draws(Base):
    def forward(self, x):
        return torch.relu(self.bn(self.a(x))) + torch.rand(1)


class Counts(Base):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return torch.relu(self.bn(self.a(x)))


class SwitchesAutocast(Base):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.bn(self.a(x)))


class Ordered(Base):
    def forward(self, x):
        return OrderedDict(out=torch.relu(self.bn(self.a(x))))


class Branches(Base):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x):
        return self.inner(x) if x.sum() > 1e9 else self.inner(self.a(x))


class AsksForTheClass(Base):
    def forward(self, x):
        y = self.a(x * 2 if isinstance(x, torch.Tensor) else torch.cat(x, 1))
        return torch.relu(self.bn(y)) if isinstance(y, torch.Tensor) else y


class SameTwice(Base):
    def forward(self, x, y):
        return torch.relu(self.bn(self.a(x if x is y else x + y)))


class NoneWithoutDefault(Base):
    def forward(self, x, mask):
        return torch.relu(self.bn(self.a(x if mask is None else x * mask)))


def test_arguments_are_in_the_graph_what_they_are_in_a_call():
    """A graph runs for plain tensors that differ; other arguments take the model's own code."""
    x, y = image(2, 4, 5, 5), image(2, 4, 5, 5, seed=2)
    calls = [
        (AsksForTheClass, (x,)), (AsksForTheClass, ([x[:, :1], x[:, 1:]],)), (SameTwice, (x, x)), (SameTwice, (x, y)),
        (NoneWithoutDefault, (x, None)), (NoneWithoutDefault, (x, y)),
    ]  # fmt: skip
    for make, arguments in calls:
        model = filled(make())
        fast = tilesmith.optimize(model)
        assert tilesmith.report_of(fast).layers[0].why == "folded bn, relu"
        with torch.no_grad():
            torch.testing.assert_close(fast(*arguments), model(*arguments), rtol=1e-4, atol=1e-4)


class AsksForAnAttribute(Base):
    def forward(self, x):
        return torch.relu(self.bn(self.a(x.mask if hasattr(x, "mask") else x)))


class AsksForTheClassOfAResult(Base):
    def forward(self, x):
        y = torch.relu(self.bn(self.a(x))).chunk(2, 1)
        return y[0] if isinstance(y, tuple) else y


class Catches(Base):
    def forward(self, x):
        try:
            x = x.mask
        except Exception:
            x = x * 2
        return torch.relu(self.bn(self.a(x)))


class StoresInAList(Base):
    def __init__(self):
        super().__init__()
        self.stored = [None]

    def forward(self, x):
        y = torch.relu(self.bn(self.a(x)))
        self.stored[0] = y
        return y


class CountsInADictionary(Base):
    def __init__(self):
        super().__init__()
        self.stored = {"deep": [{"calls": 0}]}

    def forward(self, x):
        self.stored["deep"][0]["calls"] += 1
        return torch.relu(self.bn(self.a(x)))


OUTSIDE: dict = {"last": None, "all": []}


class StoresOutside(Base):
    def forward(self, x):
        y = torch.relu(self.bn(self.a(x)))
        OUTSIDE["last"] = y
        OUTSIDE["all"].append((y, 1))
        return y


REFUSED = [
    Draws, Counts, SwitchesAutocast, Ordered, Branches, AsksForAnAttribute, AsksForTheClassOfAResult, Catches,
    StoresInAList, CountsInADictionary, StoresOutside,
]  # fmt: skip


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_no_graph_is_made_of(make):
    model, x = filled(make()), image(2, 4, 5, 5)
    fast = tilesmith.optimize(model)
    assert type(fast) is make
    with torch.no_grad():
        torch.manual_seed(0)
        found = fast(x)
        torch.manual_seed(0)
        want = model(x)
    assert type(found) is type(want)
    torch.testing.assert_close(found, want, rtol=1e-2, atol=1e-2)
    assert getattr(fast, "calls", 1) == 1
    inner = [layer.why for layer in tilesmith.report_of(fast).layers if layer.name == "inner.0"]
    assert inner == (["folded inner.1, relu"] if make is Branches else [])


class Registered(Base):
    known: dict = {}  # noqa: RUF012

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        assert cls.__name__ not in Registered.known
        Registered.known[cls.__name__] = cls

    def forward(self, x):
        return torch.relu(self.bn(self.a(x)))

    def twin(self):
        made = type(self)()
        made.load_state_dict(self.state_dict())
        return made.eval()


def test_the_class_of_a_program_does_not_escape():
    class Named(Registered):
        pass

    model, x = filled(Named()), image(2, 4, 5, 5)
    fast = tilesmith.optimize(model)
    assert type(fast) is not Named
    assert Registered.known == {"Named": Named}
    with torch.no_grad():
        assert type(fast.twin()) is Named
        torch.testing.assert_close(fast.twin()(x), fast(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(type("Later", (type(fast),), {})().eval()(x).shape, x.shape)
    assert list(Registered.known) == ["Named", "Later"]


def test_a_metaclass_may_count_its_classes():
    class Counting(type):
        def __init__(cls, *args):
            super().__init__(*args)
            cls.made = getattr(cls, "made", 0) + 1

    class Counted(Branches, metaclass=Counting):
        def forward(self, x):
            return self.inner(self.a(x))

    fast = tilesmith.optimize(filled(Counted()))
    assert type(fast) is Counted
    assert Counted.made == 1
    assert tilesmith.report_of(fast).layers[2].why == "folded inner.1, relu"


def test_what_a_trace_changes_is_put_back():
    OUTSIDE.update(last=None, all=[])
    hidden: list = []
    show = hidden.append  # a name that leads to no container

    class Shows(Base):
        def forward(self, x):
            y = torch.relu(self.bn(self.a(x)))
            show(y)
            return y

    for make in (StoresInAList, CountsInADictionary, StoresOutside, Shows):
        fast = tilesmith.optimize(filled(make()))
        assert getattr(fast, "stored", [None]) in ([None], {"deep": [{"calls": 0}]})
    assert OUTSIDE == {"last": None, "all": []}
    assert hidden == []
    with torch.no_grad():
        y = fast(image(2, 4, 5, 5))
    assert hidden[0] is y


FLAGS = {"twice": False}


class Configured(Base):
    def __init__(self):
        super().__init__()
        self.cfg, self.config = {"deep": [1.0]}, SimpleNamespace(negated=False)

    def forward(self, x):
        y = torch.relu(self.bn(self.a(x))) * self.cfg["deep"][0]
        y = -y if self.config.negated else y
        return y * 2 if FLAGS["twice"] else y


def test_what_forward_reads_in_containers_is_watched():
    model, x = filled(Configured()), image(2, 4, 5, 5)
    fast = tilesmith.optimize(model)

    def agree():
        with torch.no_grad():
            torch.testing.assert_close(fast(x), tilesmith.restore(copy.deepcopy(fast))(x), rtol=1e-4, atol=1e-4)

    agree()
    fast.cfg["deep"][0] = 3.0
    agree()
    fast.config.negated = True
    agree()
    program = fast._tilesmith_graph.program
    fast.eval()  # nothing has changed: compiled programs stay valid
    assert fast._tilesmith_graph.program is program
    FLAGS["twice"] = True  # seen by eval()
    fast.eval()
    agree()
    FLAGS["twice"] = False
    assert fast._tilesmith_graph.program is not program
    assert fast._tilesmith_graph.folded
