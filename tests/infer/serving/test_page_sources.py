"""What the page's sources must not do: make markup of data, name another host, break the security policy."""

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[3] / "mona_infer/serving/static"
SOURCES = [path for path in sorted(STATIC.rglob("*")) if path.suffix in (".js", ".css", ".html", ".svg")]
MARKUP = (
    r"\.(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bon\w+=\"|setAttribute\(\"style\""
)
NAMESPACE = "http://www.w3.org/2000/svg"


def test_there_is_a_page():
    assert {"index.html", "main.js", "niivue.js"} <= {path.name for path in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_nothing_from_elsewhere_and_no_markup_of_data(path):
    text = path.read_text(encoding="utf-8")
    assert re.search(MARKUP, text) is None
    assert re.findall(r"(?:https?:)?//[a-z0-9][\w.-]*\.\w+", re.sub(r"^\s*//.*$", "", text, flags=re.M)) in (
        [],
        [NAMESPACE.removesuffix("/2000/svg")],
    )


def test_every_import_is_there():
    for path in SOURCES:
        for name in re.findall(r'from "(\.[^"]+)"', path.read_text(encoding="utf-8")) if path.suffix == ".js" else ():
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=", page) is None
    for name in re.findall(r'(?:src|href)="static/([^"]+)"', page):
        assert (STATIC / name).is_file()
