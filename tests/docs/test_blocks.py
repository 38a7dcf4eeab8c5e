"""Every block of code in README and docs is executed, or is a command whose options exist."""

from __future__ import annotations

import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import typer
from helpers import bundles
from helpers.dicom_files import write_series
from helpers.doc_pages import LANGUAGES, PAGES, ROOT, blocks, execute, mona_commands
from helpers.models import scan, write

from mona_infer.cli.main import app
from mona_infer.models import bundled

THICK = np.diag([1.5, 1.5, 10.0, 1.0])
OWN_TEST = {ROOT / "docs/tutorial.md", *(ROOT / "docs/howto").glob("*.md")}  # test_tutorial, test_howto
TOOLS = {"--all", "--roofline", "--nproc-per-node"}  # of programs in tools/, and of torchrun
SNIPPETS = [page for page in PAGES if blocks(page, "python") and page not in OWN_TEST]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the snippets name: a model, a model that comes with mona, a scan, a cine, two DICOM series."""
    bundles.put(tmp_path / "bundled", "acdc-5pc", 0.9)
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "bundled")
    (tmp_path / "runs/acdc-mona-5pc").mkdir(parents=True)
    write(tmp_path / "runs/acdc-mona-5pc/model.onnx")
    nib.save(nib.Nifti1Image(scan(), THICK), tmp_path / "scan.nii.gz")
    nib.save(nib.Nifti1Image(np.stack([scan(n) for n in range(3)], -1), THICK), tmp_path / "cine.nii.gz")
    for name in ("series", "patient001"):
        write_series(tmp_path / name, scan(), THICK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", SNIPPETS, ids=lambda page: page.name)
def test_python_runs_as_printed(page: Path, folder: Path) -> None:
    execute(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    directives = ("{toctree}", "{eval-rst}", "{include}", "{literalinclude}")  # of the site
    found = (b for b in blocks(page) if b.language not in directives)
    unknown = [f"{b} is {b.language or 'nothing'}" for b in found if b.language not in LANGUAGES]
    assert not unknown, f"expected one of {', '.join(sorted(LANGUAGES))}: {unknown}"
    executed = [str(b) for b in blocks(page, "console") if page not in OWN_TEST]
    assert not executed, f"no test runs these; give them one, or call them sh or text: {executed}"


def _options(words: list[str]) -> tuple[list[str], set[str]]:
    """The command that `words` begin with and the options it takes."""
    command = typer.main.get_command(app)
    context = command.make_context("mona", [], resilient_parsing=True)
    names: list[str] = []
    for word in words:
        inner = _inner(command, context, word)
        if inner is None:
            break
        names.append(word)
        command = inner
    assert names, f"mona has no command {words[0]}"
    return names, {name for parameter in command.params for name in parameter.opts}


def _inner(command: object, context: object, word: str) -> object:
    if not hasattr(command, "get_command"):
        return None
    found = command.get_command(context, word)
    if found is None or not hasattr(found, "_target"):
        return found
    import importlib

    module, _, name = found._target.partition(":")
    target = getattr(importlib.import_module(module), name)
    if not isinstance(target, typer.Typer):
        holder = typer.Typer(add_completion=False)
        holder.command(name=word)(target)
        target = holder
    return typer.main.get_command(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    wrong = []
    for block in blocks(page, "sh", "text", "console"):
        for words in mona_commands(block.text):
            if words[0] in ("...", "COMMAND") or words[0].startswith("-"):
                continue
            names, known = _options(words)
            for option in (word.partition("=")[0] for word in words[len(names) :] if word.startswith("--")):
                if option not in known | {"--help"}:
                    wrong.append(f"{block}: mona {' '.join(names)} has no {option}")
    assert not wrong, "\n".join(wrong)


def test_options_in_tables_and_sentences_exist() -> None:
    """`--option` in backticks is an option of some command, of pip or of a tool named beside it."""
    words = [[name] for name in ("train", "export", "segment", "serve", "evaluate", "view", "demo", "doctor")]
    words += [["data", name] for name in ("check", "prepare", "info")]
    words += [["bench", name] for name in ("run", "add", "report")] + [["label", "next"]]
    known = set().union(*(_options(command)[1] for command in words)) | {"--help", "--version"}
    wrong = []
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for span in re.findall(r"`(--[a-z][^`]*)`", prose):
            option = re.split(r"[ =\[]", span)[0]
            if option not in known | TOOLS:
                wrong.append(f"{page.name}: {option}")
    assert not wrong, "\n".join(wrong)
