"""Files around the code say what the code says: versions, targets, tools."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from helpers.doc_pages import ROOT

from mona_infer import __version__

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra `docs`")
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_of_the_paper() -> None:
    cited = read(ROOT / "CITATION.cff")
    assert cited["version"] == __version__ and cited["license"] == "Apache-2.0"
    (paper,) = cited["references"]
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["You", "Dai", "Min", "Staib", "Sekhon", "Duncan"] and paper["year"] == 2024


@pytest.mark.parametrize("form", [f for f in FORMS if f.name != "config.yml"], ids=lambda form: form.name)
def test_issue_forms_are_what_github_takes(form: Path) -> None:
    found = read(form)
    assert {"name", "description", "body"} <= set(found)
    for field in found["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes", "markdown")
        assert field["attributes"]["label"]
        assert field["type"] != "dropdown" or all(isinstance(option, str) for option in field["attributes"]["options"])


def test_workflows_and_hooks_call_what_there_is() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in [
        *(ROOT / ".github/workflows").glob("*.yml"),
        ROOT / ".pre-commit-config.yaml",
        ROOT / "CONTRIBUTING.md",
    ]:
        called = set(re.findall(r"\bmake (?:--silent )?([a-z-]+)", path.read_text(encoding="utf-8")))
        assert called <= targets, f"{path.name}: {called - targets}"
    for workflow in (ROOT / ".github/workflows").glob("*.yml"):
        jobs = read(workflow)["jobs"]
        assert all(job["runs-on"] and job["steps"] for job in jobs.values())
    hooks = [hook for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert {"ruff", "ruff-format", "mypy", "docs"} == {hook["id"] for hook in hooks}
    assert {repo["repo"] for repo in read(ROOT / ".pre-commit-config.yaml")["repos"]} == {"local"}


def test_make_install_brings_the_docs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"sphinx", "furo", "myst-parser"} == {re.split("[>=<]", name)[0] for name in extras["docs"]}
    assert re.search(r'-e "\.\[[^\]]*\bdocs\b', (ROOT / "Makefile").read_text())
