"""The site builds without a warning, its pages ask nobody for anything, and links of README lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.doc_pages import PAGES, ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it: a dead link or any other warning fails."""
    pytest.importorskip("furo", reason="sphinx and furo, of the extra `docs`, are not installed")
    pytest.importorskip("myst_parser", reason="myst-parser, of the extra `docs`, is not installed")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, "--doctree-dir", out / "trees", ROOT / "docs", out / "html"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_a_dead_link_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="sphinx and furo, of the extra `docs`, are not installed")
    (tmp_path / "index.md").write_text("# A page\n\n[dead](nowhere.md) and [no such heading](index.md#nowhere)\n")
    options = [
        "--fail-on-warning",
        "--keep-going",
        "--conf-dir",
        ROOT / "docs",
        "-D",
        "html_static_path=",
        tmp_path,
        tmp_path / "html",
    ]
    done = subprocess.run([sys.executable, "-m", "sphinx", "--quiet", *options], capture_output=True, text=True)
    assert done.returncode != 0 and "nowhere.md" in done.stderr and "'nowhere'" in done.stderr


def test_pages_make_no_requests(site: Path) -> None:
    elsewhere = r"(?:https?:)?//"
    asked = re.compile(
        rf"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']{elsewhere}[^\"']*"
        rf"|<link\b(?=[^>]*rel=[\"'](?:stylesheet|preload|preconnect|icon)[^>]*)[^>]*href=[\"']{elsewhere}[^\"']*"
        rf"|@import\s+(?:url\()?[\"']?{elsewhere}\S*|url\([\"']?{elsewhere}[^)]*"
    )
    pages = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg")]
    assert len(pages) > 20
    found = {str(path.relative_to(site)): asked.findall(path.read_text(encoding="utf-8")) for path in pages}
    assert not {name: links for name, links in found.items() if links}


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    """Also on GitHub, where there is no site: README and CONTRIBUTING are no part of it."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead, f"{page.name}: {dead}"


def test_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 120


def test_pictures_are_small_and_used() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (ROOT / "docs/images").iterdir():
        assert picture.stat().st_size < 300_000 and f"images/{picture.name}" in text
