"""What a release is made of: the workflows, the version, the files of the wheel."""

import importlib.util
import re
import subprocess
import sys

import pytest
import yaml
from pages import ROOT

import tilesmith

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def test_there_is_a_workflow_for_each_purpose():
    assert {path.stem for path in WORKFLOWS} >= {"test", "docs", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow(path):
    """It parses; actions are pinned by a commit; each job names its rights and its time; its make targets exist."""
    text = path.read_text()
    flow = yaml.safe_load(text)
    assert flow["permissions"] in ({}, {"contents": "read"})
    assert "secrets." not in text
    make = (ROOT / "Makefile").read_text()
    for name, job in flow["jobs"].items():
        assert job["permissions"], name
        assert 1 <= job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
                assert re.search(rf"^{target}:", make, re.M), target
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    for used in re.findall(r"uses: *(.*)", text):
        assert re.fullmatch(r"[\w-]+/[\w.-]+@[0-9a-f]{40} # \S+", used), used


def test_only_the_last_job_of_a_release_has_its_rights():
    jobs = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text())["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert not any("checkout" in step.get("uses", "") for step in jobs["publish"]["steps"])


def test_issue_forms_and_citation():
    forms = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) >= 3
    for path in forms:
        form = yaml.safe_load(path.read_text())
        assert form["name"]
        assert form["description"]
        assert all(part["type"] == "textarea" and part["attributes"]["label"] for part in form["body"])
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (ROOT / "SECURITY.md").exists()


def test_the_version_stands_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+", tilesmith.__version__)
    for name in ("pyproject.toml", "CMakeLists.txt", "CITATION.cff"):
        assert tilesmith.__version__ not in (ROOT / name).read_text(), name
    assert f"\n## {tilesmith.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_holds_what_it_must(tmp_path):
    """Without its compiled module, which takes a compiler: `make dist` checks the whole wheel by the same function."""
    options = {"wheel.cmake": "false", "wheel.py-api": ""}
    make = f"import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1], {options})"
    done = subprocess.run(
        [sys.executable, "-c", make, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "release" / "wheels.py")
    wheels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheels)
    (wheel,) = tmp_path.glob(f"tilesmith-{tilesmith.__version__}-*.whl")
    wheels.check_content(wheel, built=False)
    with pytest.raises(SystemExit, match="_runtime.abi3.so"):
        wheels.check_content(wheel)
