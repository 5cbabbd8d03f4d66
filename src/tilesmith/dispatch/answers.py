"""Looks up the records of a problem and its neighbours in databases and packages. No solver is imported."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.db.layers import Answer
from tilesmith.dispatch.packaged import above, rows_of
from tilesmith.dispatch.request import Request
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.spellings import other_spellings

_NEIGHBOURS = 2  # that are looked at: the nearest may have no record that is of use here
Measured = tuple[str, tuple[Answer, ...]]  # the key of a problem, and what was measured of it


def answers_of(request: Request) -> tuple[Answer, ...]:
    """Each layer's records of the problem, the highest layer first: packages are above installed databases."""
    answers = request.layers.answers(request.problem, request.target.name)
    if not request.packages.state:
        return answers
    higher = above(answers)
    return (*higher, *rows_of(request), *(answer for answer in answers if answer not in higher))


def neighbours_of(request: Request) -> tuple[Measured, ...]:
    """The nearest neighbours with what was measured of each: all of the databases that ``by_neighbour`` depends on."""
    layers, target = request.layers, request.target.name
    keys = layers.neighbours(request.problem, target)[:_NEIGHBOURS]
    return tuple((key, layers.measured(key, target)) for key in keys)


def as_held(request: Request) -> Request:
    """The problem under the key that a database has. Axes of size 1 can give a problem several keys."""
    if not isinstance(request.signature, ConvSignature):  # a product has one
        return request
    others = other_spellings(request.signature)
    if not others or answers_of(request):
        return request
    spelled = (replace(request, signature=each) for each in others)
    return next((each for each in spelled if answers_of(each)), request)
