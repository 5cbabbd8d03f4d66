"""The words of `tilesmith gemm`."""

import pytest

from tilesmith import GemmSignature
from tilesmith.errors import CommandError, ProblemError
from tilesmith.lab.words import read_words, said


def sizes(*words):
    return [(p.m, p.n, p.k) for p in read_words(words).problems]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["MNK=1024"], [(1024, 1024, 1024)]),
        (["M=968", "N=1376", "K=2616"], [(968, 1376, 2616)]),
        (["MNK=1024:4096:1024"], [(n, n, n) for n in (1024, 2048, 3072, 4096)]),
        (["MN=8,16", "K=3"], [(8, 8, 3), (16, 16, 3)]),
        (["M=1:3:2", "NK=5,7"], [(1, 5, 5), (1, 7, 7), (3, 5, 5), (3, 7, 7)]),
        (["MNK=4,1:5:2,4"], [(4, 4, 4), (1, 1, 1), (3, 3, 3), (5, 5, 5)]),
    ],
)
def test_letters_lists_and_ranges(words, expected):
    assert sizes(*words) == expected


def test_forms_types_and_epilogue():
    asked = read_words(["MNK=8", "nt", "tn", "bf16", "tf32", "bias", "relu", "B=3", "t=500", "s=7"])
    assert (asked.trials, asked.seconds, asked.in_background, asked.is_of_tvm) == (500, 7, False, False)
    found = [(p.dtype, p.acc_dtype, p.trans_a, p.trans_b, p.batch, p.epilogue.bias, p.epilogue.activation)
             for p in asked.problems]  # fmt: skip
    assert found == [
        ("bf16", "fp32", False, True, 3, True, "relu"), ("bf16", "fp32", True, False, 3, True, "relu"),
        ("fp32", "tf32", False, True, 3, True, "relu"), ("fp32", "tf32", True, False, 3, True, "relu"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "background", "tvm"), [(65536, False, False), (65537, False, True), (2, True, False)]
)
def test_the_option(option, background, tvm):
    asked = read_words(["MNK=8", f"O={option}"])
    assert (asked.in_background, asked.is_of_tvm) == (background, tvm)


@pytest.mark.parametrize(
    "words",
    [
        ["MNK=1024"],
        ["M=968", "N=1376", "K=2616", "nt", "bf16", "bias", "residual", "gelu"],
        ["MNK=8", "B=2", "tt", "tf32"],
    ],
)
def test_what_is_said_is_read_back(words):
    (problem,) = read_words(words).problems
    assert read_words(said(problem).split()).problems == (problem,)
    assert isinstance(problem, GemmSignature)


@pytest.mark.parametrize(
    ("words", "said_of_it"),
    [
        (["MNK=8", "fp33"], "fp33"),
        (["MK=8"], "N is not given"),
        (["MNK=8", "K=9"], "K is given twice"),
        (["MM=8", "NK=8"], "M is given twice"),
        (["MNK=8:4:1"], "8:4:1"),
        (["MNK=1:8:0"], "1:8:0"),
        (["MNK=1:8"], "1:8"),
        (["MNK=-3"], "-3"),
        (["MNK="], "''"),
        (["MNK=1:999999999:1"], "more than"),
        (["MN=1:200:1", "K=1:200:1"], "40000"),
        (["MNK=8", "relu", "gelu"], "two activations"),
        (["MNK=8", "t=0"], "t=0"),
        (["MNK=8", "s=x"], "s=x"),
    ],
)
def test_bad_words_are_named(words, said_of_it):
    with pytest.raises(CommandError) as error:
        read_words(words)
    assert said_of_it in str(error.value)


def test_a_size_that_no_product_has():
    with pytest.raises(ProblemError):
        read_words(["MNK=999999999"])
