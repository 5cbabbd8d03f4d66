"""The C side of problems: the same keys, refusals and shapes as Python's signatures."""

from __future__ import annotations

import ctypes
import math
import random
import re
import struct
import subprocess
from pathlib import Path

import pytest
from c_problems import ABI_VERSION, BAD_ARGUMENT, BAD_PROBLEM, CSRC, KEY_ROOM, OK, OWN, Desc, build
from problem_keys import compare, conv_case, gemm_case

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_key
from tilesmith.toolchain.compilers import find_compiler

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "c-descriptor.md"
CONV = {"n": 2, "c": 8, "k": 16, "in": (9, 7), "filter": (3, 3)}
NCHW, NHWC = 0x5421, 0x2541
GEMM = {"op": 1, "m": 4, "n": 5, "k": 6}


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    return build(tmp_path_factory.mktemp("problems"))


def table():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.M)
    assert rows
    return [(name, default, readers) for name, _, default, readers in rows]


def test_random_problems(c):
    report = compare(3000, 7, c)
    assert not report.differ, "\n".join(report.differ[:5])
    assert len(report.keys) > 1500
    assert report.counts["with other spellings"] > 150
    assert len(report.rules) > 30  # places in Python that refuse
    text = "\n".join(report.keys)
    for part in ("conv1;fwd", "conv2;bwd", "wrw", "bgrad", "gemm2", "xs=", "ws=", "ys=", "padhi=", "wlim=0", ";det",
                 "scale_channel", "bias+residual", "leaky_relu(", ",inf)", "clamp(-", "tf32", "acc=fp64", "int32",
                 "fp8e5m2", "c32,", "NCDHW", ",t;", "lda=", "sb=0", "sc=", "e-", "e+"):  # fmt: skip
        assert part in text


BIG = 2**31 - 1
UNIT = {"n": 1, "c": 1, "k": 1, "in": (1, 1), "filter": (1, 1)}


def nhwc(n, c, strides, **more):
    return lambda: ConvSignature((n, 1, 2, c), (1, 1, 1, c), shared_layout="NHWC", input_strides=strides, **more)


def vectors(pitch):
    return lambda: ConvSignature(
        (2, 1, 1, 1, 4), (1, 4, 1, 1), input_layout="NCHWc4", input_strides=(pitch, 4, 4, 4, 1)
    )


# Where sums and products end at a limit or begin below 0: too rare among random numbers.
EDGES = [
    ({"in": (1, 5), "filter": (1, 5), "padding_low": (0, BIG - 1), "stride": (1, BIG)},
     lambda: ConvSignature((1, 1, 1, 5), (1, 1, 1, 5), stride=(1, BIG), padding=((0, 0), (BIG - 1, 0)))),
    ({"in": (1, 5), "filter": (1, 5), "padding_low": (0, 2**30), "stride": (1, BIG)},
     lambda: ConvSignature((1, 1, 1, 5), (1, 1, 1, 5), stride=(1, BIG), padding=((0, 0), (2**30, 0)))),
    ({"n": 0, "c": BIG, "in": (BIG, BIG)}, lambda: ConvSignature((0, BIG, BIG, BIG), (1, BIG, 1, 1))),
    ({"n": 2, "c": 4, "x_layout": NCHW | 4 << 24, "x_pitch_image": 2**59 - 4}, vectors(2**59 - 4)),
    ({"n": 2, "c": 4, "x_layout": NCHW | 4 << 24, "x_pitch_image": 2**59 - 3}, vectors(2**59 - 3)),
    ({"c": 0, "in": (1, 2), "layout": NHWC, "x_pitch_c": 2**60 + 1, "x_pitch_channel": 2**59 + 2},
     nhwc(1, 0, (2**61 + 2, 2**61 + 2, 2**60 + 1, 2**59 + 2))),
    ({"c": 0, "in": (1, 2), "layout": NHWC, "x_pitch_c": 2**60 + 1, "x_pitch_channel": 2**59 + 1},
     nhwc(1, 0, (2**61 + 2, 2**61 + 2, 2**60 + 1, 2**59 + 1))),
    ({"in": (1, 2), "layout": NHWC, "activation": 5, "low": -0.0},
     nhwc(1, 1, None, epilogue=Epilogue(activation="clamp"))),
    ({"transposed": 1, "stride": (1, 3), "output_padding": (0, 3)},
     lambda: ConvSignature((1, 1, 1, 1), (1, 1, 1, 1), stride=(1, 3), transposed=True, output_padding=(0, 3))),
    ({"transposed": 1, "in": (1, BIG), "filter": (1, 2), "stride": (1, BIG)},
     lambda: ConvSignature((1, 1, 1, BIG), (1, 1, 1, 2), stride=(1, BIG), transposed=True)),
    ({"transposed": 1, "in": (1, BIG), "filter": (1, BIG), "stride": (1, BIG), "dilation": (1, BIG),
      "output_padding": (0, BIG - 1)},
     lambda: ConvSignature((1, 1, 1, BIG), (1, 1, 1, BIG), stride=(1, BIG), dilation=(1, BIG), transposed=True,
                           output_padding=(0, BIG - 1))),
    ({"c": 2**33, "k": 8, "groups": 8, "x_layout": NCHW | 4 << 24},
     lambda: ConvSignature((1, 2**31, 1, 1, 4), (8, 2**30, 1, 1), groups=8, input_layout="NCHWc4")),
    ({"c": 4 * BIG, "k": BIG, "groups": BIG, "x_layout": NCHW | 4 << 24},
     lambda: ConvSignature((1, BIG, 1, 1, 4), (BIG, 4, 1, 1), groups=BIG, input_layout="NCHWc4")),
    ({"op": 1, "m": 6, "n": 4, "k": 5, "batch": 0, "lda": 2**62},
     lambda: GemmSignature(m=6, n=4, k=5, batch=0, lda=2**62)),
    ({"op": 1, "m": 0, "n": 4, "k": 5, "batch": 2, "ldc": 2**62, "stride_c": 1},
     lambda: GemmSignature(m=0, n=4, k=5, batch=2, ldc=2**62, stride_c=1)),
    ({"op": 1, "m": 2, "n": 4, "k": 5, "batch": 0, "ldc": 9, "stride_c": 1},
     lambda: GemmSignature(m=2, n=4, k=5, batch=0, ldc=9, stride_c=1)),
    ({"op": 1, "m": 2, "n": 1, "k": 1, "ldc": 2**59 - 1}, lambda: GemmSignature(m=2, n=1, k=1, ldc=2**59 - 1)),
    ({"op": 1, "m": 2, "n": 1, "k": 1, "ldc": 2**59}, lambda: GemmSignature(m=2, n=1, k=1, ldc=2**59)),
    ({"op": 1, "m": BIG, "n": 1, "k": 1, "batch": BIG}, lambda: GemmSignature(m=BIG, n=1, k=1, batch=BIG)),
    ({"op": 1, "m": 1, "n": 1, "k": 1, "alpha": -0.0}, lambda: GemmSignature(m=1, n=1, k=1, alpha=-0.0)),
    ({"op": 1, "m": 1, "n": 1, "k": 1, "dtype": 7, "alpha": float(BIG), "beta": -float(BIG)},
     lambda: GemmSignature(m=1, n=1, k=1, dtype="int8", alpha=float(BIG), beta=-float(BIG))),
    ({"op": 1, "m": 1, "n": 1, "k": 1, "dtype": 7, "alpha": 2.0**31},
     lambda: GemmSignature(m=1, n=1, k=1, dtype="int8", alpha=2.0**31)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "signature"), EDGES, ids=lambda value: str(value) if isinstance(value, dict) else ""
)
def test_at_the_limits(c, values, signature):
    try:
        wanted = signature().key()
    except ProblemError:
        wanted = ""
    status, key, message = c.key(c.desc(**values if "op" in values else {**UNIT, **values}))
    assert (status, key) == (OK if wanted else BAD_PROBLEM, wanted), message


def test_every_key_of_c_is_one_that_python_reads(c):
    """Any field may have any value here: nothing but C decides what there is."""
    rng = random.Random(11)
    seen = 0
    for number in range(3000):
        case = (gemm_case if number % 4 == 0 else conv_case)(rng)
        desc = c.desc(**case.values)
        for name, _ in rng.sample(Desc._fields_[2:], rng.randrange(3)):
            if name.startswith(("x_offset", "y_offset")):
                continue
            kind = type(getattr(desc, name))
            value = rng.choice((0, 1, 2, 3, 4, 64, -1, 1000, 2**31 - 1))
            if issubclass(kind, ctypes.Array):
                getattr(desc, name)[rng.randrange(3)] = value
            else:
                setattr(desc, name, value)
        status, key, _ = c.key(desc)
        if status == OK and not re.search(r"x=[^;]*,(0x|[^;]*x0[x;])|[mnk]=0;|batch=0;", key):
            assert parse_key(key).key() == key
            seen += 1
    assert seen > 500


def test_numbers_are_pythons_repr(c):
    rng = random.Random(3)
    values = [0.0, 5e-324, 2.2250738585072014e-308, 2.2250738585072009e-308, 1.7976931348623157e308, 9007199254740993.0]
    values += [2.0**e for e in range(-1074, 1024)] + [float(f"{d}e{e}") for d in (1, 9.5) for e in range(-307, 308)]
    values += [math.nextafter(10.0**e, to) for e in range(-20, 23) for to in (0.0, math.inf)]
    values += [rng.randrange(2**50, 2**53) + rng.randrange(8) / 8 for _ in range(500)]  # ties between last digits
    values += [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(4000)]
    room = ctypes.create_string_buffer(32)
    c.c.ts_real_text.argtypes = [ctypes.c_double, ctypes.c_char_p]
    for value in [*values, *(-v for v in values), math.inf, -math.inf, math.nan]:
        c.c.ts_real_text(value, room)
        assert room.value.decode() == repr(value)


def test_the_activations_of_c_are_those_of_python(c):
    """Those that this Python does not know yet come behind its own, under keys of version 2."""
    names = re.findall(
        r'"(\w+)"', re.findall(r"ts_activation_names\[\]\[12\] = \{(.*?)\}", (CSRC / "ts_key.c").read_text(), re.S)[0]
    )
    assert tuple(names[: len(ACTIVATIONS)]) == ACTIVATIONS
    for number, name in enumerate(names):
        version = 1 if number <= names.index("clamp") else 2
        status, key, _ = c.key(c.desc(**GEMM, activation=number))
        assert status == OK
        assert key.startswith(f"gemm{version};")
        assert number == 0 or f";epi={name}" in key
    assert c.key(c.desc(**GEMM, activation=len(names)))[0] == BAD_PROBLEM


def refusal(c, /, **values):
    status, key, message = c.key(c.desc(**values))
    assert (status, key) == (BAD_PROBLEM, "")
    return message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**CONV, "c": 7, "groups": 2}, "groups 2 does not divide the 7 input channels"),
        ({**CONV, "stride": (1, 0)}, "stride[1] is 0; it is from 1 to 2^31-1"),
        ({**CONV, "stride": (1, 1, 2)}, "stride[2] is 2, and there are 2 spatial axes"),
        ({**CONV, "n": -2}, "n is -2; it is from 0 to 2^31-1"),
        ({**CONV, "k": -1}, "k is not set (-1); it is from 1"),
        ({**CONV, "layout": 0x7254}, "layout HWC? (0x7254) is no order of NCHW, the axes of dims 2"),
        ({**CONV, "dims": 3, "y_layout": NHWC}, "y_layout NHWC (0x2541) is no order of NCDHW, the axes of dims 3"),
        ({**CONV, "w_layout": NCHW | 5 << 24}, "w_layout 0x5005421: the vector width 5 is none of 4, 8, 16, 32"),
        ({**CONV, "layout": NHWC, "y_pitch_row": 79}, "y_pitch_row is 79: inside it lie 80 elements"),
        ({**CONV, "x_pitch_plane": 9}, "x_pitch_plane goes with more spatial axes"),
        ({**CONV, "out": (7, 6)}, "out[1] is 6; the other fields give 5"),
        ({**CONV, "output_padding": (1, 0)}, "output_padding 1 goes with transposed = 1 only"),
        ({**CONV, "activation": 2, "slope": math.inf}, "slope is inf; TS_LEAKY_RELU needs a finite one"),
        ({**CONV, "activation": 5, "low": 7.5}, "TS_CLAMP needs low <= high, got 7.5 and 6.0"),
        ({**CONV, "mode": 2, "bias": 1},
         "a bias, a residual, a scale and an activation go with mode fwd or bwd, got wrw"),
        ({**CONV, "math_mode": 1, "dtype": 3}, "math_mode TS_MATH_TF32 goes with fp32 tensors, got fp16, fp16, fp16"),
        ({**CONV, "in": (2**31 - 1, 2**31 - 1)},
         "x spans more than 2^59 elements with its pitches; tensors end at 2^59"),
        ({**GEMM, "lda": 5}, "lda is 5, smaller than a stored row of 6 elements"),
        ({**GEMM, "batch": 3, "stride_c": 19}, "stride_c is 19: the 3 results of 4 x 5 overlap"),
        ({**GEMM, "dtype": 7, "alpha": 0.5}, "alpha is 0.5; for an int32 result it must be a whole number below 2^31"),
        ({**GEMM, "op": 2}, "op is 2; it is from 0 to 1"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_value_and_the_rule(c, values, message):
    assert refusal(c, **values) == message


def test_a_pitch_of_one_pixel_makes_room_too(c):
    """An image one pixel wide: the pitch changes no address in a row, but the next row begins behind it."""
    wide = {**CONV, "layout": NHWC, "in": (9, 1), "filter": (3, 1)}
    sig = ConvSignature((2, 9, 1, 8), (16, 3, 1, 8), shared_layout="NHWC", input_strides=(9 * 12, 12, 12, 1))
    assert c.key(c.desc(**wide, x_pitch_c=12)) == (OK, sig.key(), "")


def test_offsets_of_channels(c):
    """They move the first element: no other problem, but they must fit."""
    wide = {**CONV, "layout": NHWC, "x_pitch_c": 12, "y_pitch_c": 20}
    _, key, _ = c.key(c.desc(**wide))
    assert c.key(c.desc(**wide, x_offset_c=4, y_offset_c=4)) == (OK, key, "")
    assert (
        refusal(c, **wide, x_offset_c=5)
        == "x_offset_c is 5: with the channels that is 13 elements, and the pitch around them has 12"
    )
    assert "y_offset_c is -1" in refusal(c, **wide, y_offset_c=-1)
    first = {**CONV, "layout": NCHW}  # channels outside: the image's pitch must have room for them
    assert "x_offset_c is 1: with the channels that is 567 elements" in refusal(c, **first, x_offset_c=1)
    assert c.key(c.desc(**first, x_pitch_image=63 * 9, x_offset_c=1))[0] == OK
    assert c.key(c.desc(**{**first, "n": 1}, x_offset_c=1))[0] == OK


def test_room_for_a_key(c):
    desc = c.desc(**GEMM)
    _, key, _ = c.key(desc)
    for room in (0, 1, len(key), len(key) + 1):
        out = ctypes.create_string_buffer(b"?" * KEY_ROOM)
        status = c.c.ts_problem_key(ctypes.addressof(desc), out, room, None)
        assert status == (OK if room > len(key) else BAD_ARGUMENT)
        assert out.value.decode()[:1] == ("?" if room == 0 else "g" if room > len(key) else "")
        assert out.raw[max(room, 1) :].strip(b"?\0") == b""
    assert c.c.ts_problem_key(None, out, KEY_ROOM, None) == BAD_ARGUMENT
    assert c.c.ts_problem_key(ctypes.addressof(desc), None, KEY_ROOM, None) == BAD_ARGUMENT


def test_the_longest_key_has_room(c):
    """Every part that a key can have, each as long as it can be."""
    sizes = {"n": 1, "c": 32, "k": 32, "in": (99,) * 3, "filter": (2,) * 3, "dims": 3}
    low = -1.7976931348623157e308
    desc = c.desc(
        **sizes, layout=0x54321 | 32 << 24, dtype=5, acc_dtype=1, scale=2, bias=1, residual=1, activation=5, low=low,
        high=-low / 3, deterministic=1, workspace_limit=2**62, padding_high=(1, 0, 0),
        **{f"{t}_pitch_{axis}": 2**50 + at for t in "xwy" for at, axis in enumerate(("channel", "image"))},
    )  # fmt: skip
    status, key, message = c.key(desc)
    assert (status, message) == (OK, "")
    longest = []
    for part in key.split(";"):
        head, _, last = part.rpartition("," if part[:2] in ("x=", "w=") else "=")
        is_number = last.replace("x", "").isdigit()
        longest.append(
            head + "=" + re.sub(r"\d+", "9" * (19 if "s" in part or "wlim" in part else 10), last)
            if is_number
            else part
        )
    assert sum(map(len, longest)) > len(key) + 200
    assert len(";".join(longest)) < KEY_ROOM


class Newer(ctypes.Structure):
    _fields_ = [("known", Desc), ("later", ctypes.c_int64 * 4)]  # noqa: RUF012  # what ctypes reads


def test_records_of_other_versions(c):
    size = ctypes.sizeof(Desc)
    _, key, _ = c.key(c.desc(**CONV))
    newer = Newer(known=c.desc(**CONV, struct_size=size + 32))
    assert c.key(newer) == (OK, key, "")
    newer.later[3] = 1 << 56
    status, _, message = c.key(newer)
    assert (status, message) == (BAD_ARGUMENT, f"byte {size + 31} of the description is 1; this library knows {size} "
                                 "bytes, and 0 after them: it is too old for this program")  # fmt: skip
    older = c.desc(**CONV, struct_size=Desc.x_pitch_c.offset)  # what lies behind it is the caller's own
    ctypes.memset(ctypes.addressof(older) + Desc.x_pitch_c.offset, 255, size - Desc.x_pitch_c.offset)
    assert c.key(older) == (OK, key, "")
    for wrong in ({"struct_size": 0}, {"struct_size": 15}, {"struct_size": 12}, {"struct_size": 4104},
                  {"struct_size": 2**32 - 8}, {"abi_version": 0}, {"abi_version": 2}):  # fmt: skip
        status, _, message = c.key(c.desc(**CONV, **wrong))
        assert status == BAD_ARGUMENT
        assert str(*wrong.values()) in message
    for length, status in ((size, OK), (size + 32, OK), (64, OK), (8, BAD_ARGUMENT), (2**32 + size, BAD_ARGUMENT)):
        memory = ctypes.create_string_buffer(b"?" * (size + 40))
        assert c.c.ts_desc_init(memory, length, ABI_VERSION) == status
        assert memory.raw[length if status == OK else 0 :].strip(b"?\0") == b""
        if status == OK:
            assert memory.raw[8 : min(length, size)] == bytes(c.desc())[8:length]
            assert memory.raw[size:length] == bytes(max(0, length - size))
    assert c.c.ts_desc_init(memory, size, 2) == c.c.ts_desc_init(None, size, ABI_VERSION) == BAD_ARGUMENT


def test_the_page_has_every_field_with_its_default(c):
    plain = c.desc()
    found = []
    for name, _ in Desc._fields_:
        value = getattr(plain, name)
        text = ", ".join(map(str, value)) if isinstance(value, ctypes.Array) else f"{value:g}"
        found.append((name, "`sizeof(ts_desc)`" if name == "struct_size" else text))
    assert [(name, default) for name, default, _ in table()] == found


def test_fields_that_a_problem_does_not_read_keep_their_defaults(c):
    for name, _, readers in table()[3:]:
        for kind, plain in (("convolution", CONV), ("GEMM", GEMM)):
            desc = c.desc(**plain)
            value = getattr(desc, name)
            if isinstance(value, ctypes.Array):
                value[0] += 1
            else:
                setattr(desc, name, value + 1)
            is_unread = (
                f"{name} is set, and a {kind} does not read it; leave it as ts_desc_init wrote it" == c.key(desc)[2]
            )
            assert is_unread == (not readers.startswith(("both", kind))), name


def test_the_sample_of_the_page(c, tmp_path):
    text = PAGE.read_text()
    (program,), (output,) = (re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S) for language in ("c", "text"))
    sig = ConvSignature(
        (1, 64, 48, 35), (35, 2, 2, 16), stride=2, transposed=True, shared_layout="NHWC", dtype="fp16",
        input_strides=(64 * 48 * 40, 48 * 40, 40, 1), epilogue=Epilogue(bias=True, activation="relu"),
    )  # fmt: skip
    assert output.splitlines()[:2] == [f"y is {' x '.join(map(str, sig.output_shape))}", sig.key()]
    (tmp_path / "sample.c").write_text(program)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", "-o", str(tmp_path / "sample")]
    libraries = [c.c._name, f"-Wl,-rpath,{Path(c.c._name).parent}"]
    subprocess.run([*find_compiler().command, *flags, str(tmp_path / "sample.c"), *libraries], check=True)
    done = subprocess.run([tmp_path / "sample"], capture_output=True, text=True, check=True, env={})
    assert done.stdout == output


def test_the_header_is_c99_and_cplusplus(tmp_path):
    (tmp_path / "use.c").write_text('#include "ts_problem.h"\nint layout = TS_NCHW | TS_VECTOR(4);\n')
    for flags in (["-x", "c", "-std=c99"], ["-x", "c++", "-std=c++17"]):
        command = [*find_compiler().command, *flags, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([*command, f"-I{CSRC}", str(tmp_path / "use.c")], check=True)


def test_nothing_is_allocated_printed_or_kept(tmp_path):
    """The objects call a few functions of the C library, none that allocates or prints; no variables."""
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-pedantic", "-Werror", "-fno-pie"]
    sources = [f"{CSRC}/ts_{name}.c" for name in OWN]
    subprocess.run([*find_compiler().command, *flags, f"-I{CSRC}", "-c", *sources], check=True, cwd=tmp_path)
    built = sorted(tmp_path.glob("*.o"))
    assert len(built) == len(OWN)
    symbols = subprocess.run(["nm", *built], capture_output=True, text=True, check=True).stdout
    assert not re.findall(r" [bBdDC] \w+", symbols)
    called = {each for each in re.findall(r" U (\w+)", symbols) if not each.startswith("ts_")}
    plain = {"memcpy", "memcmp", "memset", "strlen", "strcmp", "strcpy", "snprintf"}
    assert called <= plain | {f"__{name}_chk" for name in plain} | {"__stack_chk_fail"}


def test_python_refuses_what_the_sample_refuses():
    with pytest.raises(ProblemError):
        ConvSignature(
            (1, 64, 48, 35), (16, 2, 2, 35), shared_layout="NHWC", input_strides=(64 * 48 * 32, 48 * 32, 32, 1)
        )
