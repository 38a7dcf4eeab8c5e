"""One HTML file out of a template, styles, scripts and data: it needs no other file, and may ask nobody for one."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "page"
# Only the page's own script, and NiiVue as it was unpacked from the page; nothing may be loaded or sent.
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; connect-src data: blob:; base-uri 'none'; form-action 'none'"
)
AS_TEXT = 3 * (1 << 18)  # bytes that become base64 at a time: a multiple of 3, so that the pieces join


def document(template: str, title: str, scripts: Sequence[str], data: Mapping[str, Any]) -> Iterator[bytes]:
    """The parts of the page; `data` is by element id: bytes become base64, anything else JSON.

    The data comes before the script, which can then use it, and JSON before bytes, so that what a page says of itself
    is near its beginning.
    """
    code = script(*scripts)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    head, foot = (PAGE / template).read_text(encoding="utf-8").split("<!-- data -->")
    filled = {"title": html.escape(title), "policy": POLICY.format(script=digest), "style": _text("style.css")}
    for name, text in filled.items():
        head = head.replace(f"<!-- {name} -->", text)
    yield head.encode()
    for name, value in sorted(data.items(), key=lambda item: isinstance(item[1], bytes)):
        if isinstance(value, bytes):
            yield f'<script type="text/plain" id="{name}">'.encode()
            for at in range(0, len(value), AS_TEXT):
                yield base64.b64encode(value[at : at + AS_TEXT])
        else:
            yield f'<script type="application/json" id="{name}">{as_json(value)}'.encode()
        yield b"</script>\n"
    yield foot.replace("<!-- script -->", code).encode()


def as_json(value: Any) -> str:
    """JSON that cannot end the element that holds it: names and warnings may come from a stranger's file."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


@cache
def script(*names: str) -> str:
    """Scripts in one scope of their own."""
    return '"use strict";\n(() => {\n' + "\n".join(_text(name) for name in names) + "\n})();\n"


@cache
def _text(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")
