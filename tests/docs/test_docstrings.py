"""Docstrings of public functions and classes describe every argument, and their examples run."""

import doctest
import inspect
import re

import pytest

import tilesmith
from tilesmith.measure.accuracy import verify
from tilesmith.problems.driver import ConvParser, parse_command
from tilesmith.ready.tuning import tune

PUBLIC = (
    tilesmith.conv, tilesmith.gemm, tilesmith.get_launchable, tune, tilesmith.tune_model, tilesmith.ConvSignature,
    tilesmith.GemmSignature, tilesmith.Epilogue, tilesmith.CachePopulator, tilesmith.optimize, tilesmith.restore,
    tilesmith.report_of, tilesmith.CachePopulator.run, tilesmith.Launchable, tilesmith.Launchable.__call__,
    tilesmith.Launchable.prepare, ConvParser.command_to_signature, parse_command, verify,
)  # fmt: skip
WITH_EXAMPLE = PUBLIC[:12]


def sections(text):
    """Heading -> text of the ``Args:``, ``Returns:``, ``Raises:`` and other sections."""
    parts = re.split(r"^(\w+):\n", inspect.cleandoc(text), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(section):
    return re.findall(r"^ {4}\*?(\w+): \S", section, re.M)


@pytest.mark.parametrize("item", PUBLIC, ids=lambda item: item.__qualname__)
def test_arguments(item):
    parameters = [name for name in inspect.signature(item).parameters if name != "self"]
    assert described(sections(item.__doc__)["Args"]) == parameters


@pytest.mark.parametrize("item", PUBLIC, ids=lambda item: item.__qualname__)
def test_errors_exist(item):
    for name in described(sections(item.__doc__).get("Raises", "")):
        assert issubclass(getattr(tilesmith.errors, name), tilesmith.TilesmithError)


@pytest.mark.parametrize("item", WITH_EXAMPLE, ids=lambda item: item.__qualname__)
def test_examples(item):
    (found,) = [test for test in doctest.DocTestFinder(recurse=False).find(item, globs={}) if test.examples]
    runner = doctest.DocTestRunner()
    runner.run(found)
    assert runner.failures == 0
