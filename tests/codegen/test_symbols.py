"""Kernel symbols: printed and read back; what cannot be read back is refused."""

import pytest

from tilesmith.codegen.symbols import MARK, make_source, parse_symbol


def test_a_symbol_reads_back():
    source = make_source("c", "conv", "bf16", "m6n4", "x86_64-v4-bf16", "", f"void {MARK}(void) {{}}")
    symbol = parse_symbol(source.symbol)
    assert str(symbol) == source.symbol
    assert (symbol.op, symbol.dtype, symbol.tile, symbol.arch) == ("conv", "bf16", "m6n4", "x86_64_v4_bf16")
    assert source.text == f"void {source.symbol}(void) {{}}"


@pytest.mark.parametrize("part", ["", "two_words", "Upper", "a-b"])
@pytest.mark.parametrize("place", range(3))
def test_parts_that_would_not_read_back_are_refused(part, place):
    parts = ["conv", "fp32", "m6n4"]
    parts[place] = part
    with pytest.raises(ValueError, match="cannot be part of a kernel symbol"):
        make_source("c", *parts, "aarch64", "", MARK)


@pytest.mark.parametrize("text", ["", "ts_conv_fp32_m6n4__aarch64", "ts_conv_fp32_m6n4__aarch64_0123456789AB", "conv"])
def test_other_names_are_no_symbols(text):
    with pytest.raises(ValueError, match="is no kernel symbol"):
        parse_symbol(text)
