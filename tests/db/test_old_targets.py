"""Records of versions whose targets named no card."""

from __future__ import annotations

import pytest

from tilesmith.db.cards import Processor, with_card, without_card

HERE = Processor("AMD EPYC 9R14", "x86_64-v4-bf16", "zen4")


@pytest.mark.parametrize(
    ("target", "host", "found"),
    [
        ("sm_90a:132", "NVIDIA H200, driver 13.0", "sm_90a:132:h200"),
        ("sm_90a:132", "NVIDIA H100 80GB HBM3, driver 12.4", "sm_90a:132:h100-80gb-hbm3"),
        ("sm_90a:132", "", "sm_90a:132:generic"),
        ("x86_64-v4-bf16:2", "AMD EPYC 9R14 x2, Linux x86_64", "x86_64-v4-bf16:2:zen4"),
        ("x86_64-v4-bf16:16", "AMD EPYC 9R14 x96, Linux x86_64", "x86_64-v4-bf16:16:zen4"),
        ("x86_64-v3:2", "AMD EPYC 9R14 x2, Linux x86_64", "x86_64-v3:2:generic"),  # of another machine, or a capped one
        ("x86_64-v4-bf16:2", "Intel(R) Xeon(R) x2, Linux x86_64", "x86_64-v4-bf16:2:generic"),
        ("aarch64:4", "", "aarch64:4:generic"),
        ("sm_90a:132:h200", "NVIDIA H100 PCIe, driver 12.4", "sm_90a:132:h200"),
        ("gfx90a:104", "", "gfx90a:104"),
        ("sm_90a", "NVIDIA H200, driver 13.0", "sm_90a"),
        ("sm_90a:x", "NVIDIA H200, driver 13.0", "sm_90a:x"),
        ("", "", ""),
    ],
)
def test_a_target_gets_the_card_that_the_host_names(target, host, found):
    assert with_card(target, host, HERE) == found
    if target.count(":") == 1 and found != target:
        assert without_card(found) == target
