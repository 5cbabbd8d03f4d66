"""Lines of benchdnn on its page name the same problems as the driver commands beside them, and the rest is refused."""

import re
import shlex

import pytest
from pages import DOCS, names, section, table

from tilesmith.cli.main import run
from tilesmith.errors import CommandError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import parse_problem

PAGE = DOCS / "guide" / "benchdnn.md"
ROWS = [(names(left)[0], names(right)[0]) for left, right in table(section(PAGE, "Line by line"), "benchdnn")]


def keys(text):
    return [signature.key() for _, signature in parse_problem(text).signatures]


@pytest.mark.parametrize(("line", "command"), ROWS, ids=range(len(ROWS)))
def test_both_columns_are_one_problem(line, command):
    assert keys(line) == keys(command)
    assert keys(f"/opt/onednn/benchdnn {line}  # a comment") == keys(command)


def test_there_are_enough_of_them():
    assert len(ROWS) >= 12
    assert all(any(f"--{driver}" in line for line, _ in ROWS) for driver in ("conv", "deconv", "matmul"))


def test_the_output_of_a_descriptor_is_the_output_of_the_problem():
    """A padding that differs between the two sides follows from the output, as in benchdnn."""
    for size, out, taps, stride, pad in ((5, 8, 3, 1, 3), (8, 5, 3, 2, 3), (7, 4, 2, 2, 0), (9, 9, 4, 1, 1)):
        ((_, found),) = parse_problem(f"--conv --dir=FWD_D ic2oc3_ih{size}oh{out}kh{taps}sh{stride}ph{pad}").signatures
        assert isinstance(found, ConvSignature)
        assert found.output_shape == (2, 3, out, out)
        assert found.padding_low == (pad, pad)
    ((_, found),) = parse_problem("--deconv --dir=FWD_D ic2oc3_ih5oh10kh3sh2ph1").signatures
    assert (found.output_shape, found.output_padding) == ((2, 3, 10, 10), (1, 1))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--conv --dir=SIDEWAYS ic2ih4oc2kh1", "SIDEWAYS"),
        ("--conv --dt=u8:s8:f32 ic2ih4oc2kh1", "u8"),
        ("--conv --stag=aBx16b ic2ih4oc2kh1", "aBx16b"),
        ("--conv --attr-scales=src:common:2 ic2ih4oc2kh1", "attr-scales"),
        ("--conv --attr-post-ops=relu+sum ic2ih4oc2kh1", "relu+sum"),
        ("--conv --dir=FWD_D,BWD_D ic2ih4oc2kh1", "FWD_D,BWD_D"),
        ("--conv ih4kh1oc2", "no ic"),
        ("--conv ic2ih4oc2kh1zz9", "zz9"),
        ("--conv ic2oc2kh1", "ih"),
        ("--matmul 10x30:20x30", "do not fit"),
        ("--conv --dir=FWD_D", "needs --conv"),
        ("benchdnn", "needs --conv"),
        (f"--conv ic{'9' * 5000}ih4oc2kh1", "no size"),
        ("--matmul 10:10x2", "no product"),
        ("--conv " + "v" * 70_000, "65"),
        ("--conv --mb=many ic2ih4oc2kh1", "many"),
        ("--conv ic2ih4oc2kh1sh0", "stride of 0"),
        ("--conv --attr-post-ops=relu:x ic2ih4oc2kh1", "'x'"),
        ("--conv ic2ih9oc2oh1kh3ph1", "crops"),
    ],
    ids=lambda text: text[:40],
)
def test_what_it_cannot_mean_is_refused(line, named):
    with pytest.raises(CommandError, match=re.escape(named)):
        parse_problem(line)


def test_its_commands(capsys):
    (command, expected) = re.search(r"^\$ tilesmith (parse .*)\n((?:.+\n)+?)```", PAGE.read_text(), re.M).groups()
    assert run(shlex.split(command)) == 0
    assert capsys.readouterr().out == expected
