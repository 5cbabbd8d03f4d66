"""The page in a browser: everything drawn, nothing said on the console, and everything clicked works."""

import itertools

import pytest
from browser import browser, opened
from report_samples import HOSTILE, KEYS, make_database, make_results

from tilesmith.cli.main import run

pytestmark = pytest.mark.needs_chromium
PLOTS = {"roofline", "groups", "every", "curve", "shares", "slices", "parallel", "axes-plot"}


@pytest.fixture(scope="module")
def running():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    results = make_results(folder / "bench.json", [10.0, 20.0])
    assert run(["report", make_database(folder / "t.db"), results, "-o", str(folder / "report.html")]) == 0
    return folder / "report.html"


def check_drawn(seen, theme, width):
    assert seen.drawn() == dict.fromkeys(PLOTS, "yes")
    assert seen.blank() == []
    assert seen.violations() == []
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.page.evaluate("document.documentElement.dataset.theme") == theme
    assert seen.messages == []
    assert {url.partition(":")[0] for url in seen.requests} <= {"file", "data", "blob"}


def test_everything_is_drawn_on_a_dark_phone(running, file):
    with opened(running, file, dark=True, width=390) as seen:
        check_drawn(seen, "dark", 390)


def test_everything_is_drawn_and_what_can_be_clicked(running, file):
    with opened(running, file, width=1360) as seen:
        check_drawn(seen, "light", 1360)
        page = seen.page
        assert page.evaluate("window.harmed") is None
        assert HOSTILE in page.locator("#failures").inner_text()
        table = page.locator("#problems table")
        names = [row.split("\t")[0] for row in table.inner_text().splitlines()[1:]]
        page.get_by_role("button", name="time (us)").first.click()
        assert table.locator("th[aria-sort=descending]").inner_text().startswith("time (us)")
        assert table.locator("tbody tr").first.inner_text().startswith("gemm 64x192x128")  # 20 us
        page.locator("#problems input[type=search]").fill("64x128x128")
        assert table.locator("tbody tr").count() == 1
        assert len(names) == len(KEYS)
        table.locator("a").first.click()
        page.wait_for_function("location.hash === '#p0'")
        assert page.locator("#facts h3").inner_text().startswith("gemm 64x128x128")
        page.locator("#tuning .panel label select").first.select_option("seconds")
        page.wait_for_function("document.getElementById('curve').dataset.drawn === 'yes'")
        page.locator("#keep select").first.select_option(index=1)
        page.wait_for_function("document.getElementById('keep').innerText.includes(' configs, the best takes')")
        page.locator("#speed label", has_text="Show").locator("select").select_option("gain")
        page.get_by_role("button", name="Dark colours").click()
        page.wait_for_function("[...document.querySelectorAll('.plot')].every((plot) => plot.dataset.drawn === 'yes')")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert (
            page.evaluate("csvOf([{ name: 'a', value: (row) => row }], ['=1+1', 'x,y', -2])")
            == 'a\n\'=1+1\n"x,y"\n-2\n'
        )
        values = [3.0, 1.0, 2.0, 5.0]
        by_chance = [
            sum(map(min, draws)) / len(draws) for n in range(1, 5) if (draws := [*itertools.combinations(values, n)])
        ]
        assert [row["us"] for row in page.evaluate(f"byChance({values})")] == pytest.approx(by_chance)
        assert seen.messages == []


def test_a_comparison_is_drawn(running, file, tmp_path):
    paths = [make_results(tmp_path / f"{name}.json", rows) for name, rows in (("a", [9.0, 8.0]), ("b", [12.0, 7.0]))]
    out = tmp_path / "compare.html"
    assert run(["report", "--compare", *paths, "-o", str(out)]) == 1
    with opened(running, out) as seen:
        assert set(seen.drawn().values()) == {"yes"}
        assert seen.violations() == []
        assert "1 problem became faster and 1 slower" in seen.page.locator("#summary").inner_text()
        assert seen.messages == []


def test_the_file_is_written_in_one_step(file, tmp_path, capsys):
    results = make_results(tmp_path / "b.json", [1.0])
    for out, says in ((tmp_path / "none" / "x.html", "cannot be written"), (tmp_path, "is a folder")):
        assert run(["report", results, "-o", str(out)]) == 2
        assert says in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]
