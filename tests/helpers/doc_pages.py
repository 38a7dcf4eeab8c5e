"""Code blocks of README and docs, and how to run those that show a terminal.

What a block's language says about it:  python, cpp: executed, compiled.  console: commands after `$ `, executed, and
what they print compared.  sh: commands that need data or hardware a test lacks; their options must exist.  text: what
a command printed (its options must exist), a folder tree, a formula.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "cpp", "console", "sh", "text", "json", "toml"}
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:  # what pytest shows
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page, in order; of these languages only, where any are named."""
    text = page.read_text(encoding="utf-8")
    found = [Block(page, text.count("\n", 0, m.start()) + 1, m[2], m[3]) for m in FENCE.finditer(text)]
    return [block for block in found if not languages or block.language in languages]


def execute(page: Path) -> dict[str, object]:
    """Run all Python of a page, top to bottom, as one module; what it defines."""
    names: dict[str, object] = {"__name__": f"docs.{page.stem}"}
    for block in blocks(page, "python"):
        source = "\n" * block.line + block.text  # so that a traceback shows the page's own line
        exec(compile(source, str(page), "exec"), names)
    return names


def run_console(block: Block, folder: Path, replaced: dict[str, str] | None = None) -> None:
    """Run what follows each `$ ` and compare what it prints with what the page shows.

    Numbers may differ, `...` stands for any lines.  `replaced` makes a command smaller for a test.
    """
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        for old, new in (replaced or {}).items():
            command = command.replace(old, new)
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{block}: {command}\n{done.stderr}"
        assert re.fullmatch(_pattern(shown), _plain(done.stdout)), (
            f"{block}: {command}\nthe page shows\n{_plain(shown)}\nit printed\n{_plain(done.stdout)}"
        )


def _plain(text: str) -> str:
    """Lines without numbers, units of time, blanks at their ends and the lengths of rules."""
    text = re.sub(r"\d+([.,]\d+)*(e[-+]\d+)?|\babsent\b|(?<=\s)[-–](?=\s)", "0", text)
    text = re.sub(r"\b0 (s|min|h)\b", "0 s", text)
    lines = (" ".join(re.sub("─+", "─", line).split()) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _pattern(shown: str) -> str:
    return "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in _plain(shown).splitlines())


def mona_commands(text: str) -> list[list[str]]:
    """The words of every `mona ...` command in a block, without comments, pipes and what a program printed."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ")
        if line.startswith("mona "):
            words = shlex.split(line, comments=True)
            found.append(words[1 : words.index("|")] if "|" in words else words[1:])
    return found
