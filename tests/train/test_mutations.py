"""tools/mutate.py: its list fits the code, covers every stage and loss, and the tests kill what it lists."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import mutate  # noqa: E402

EVERY = list(mutate.mutations())


def test_every_mutation_still_fits_its_file() -> None:
    """Whoever rewrites a line rewrites its mutation too; the message says which."""
    assert list(mutate.misfits(EVERY)) == []


def test_a_line_that_is_gone_is_named() -> None:
    gone = replace(EVERY[0], text="no such line")
    with pytest.raises(LookupError, match=r"acr\.py: the text of a mutation occurs 0 times .*/mutations\.toml"):
        gone.source()


def test_every_stage_and_loss_has_mutations_and_each_changes_something() -> None:
    files = {mutation.file for mutation in EVERY}
    for folder in ("methods", "losses"):
        for path in (mutate.ROOT / "mona_train" / folder).glob("*.py"):
            assert path.name == "__init__.py" or path.relative_to(mutate.ROOT).as_posix() in files
    assert len(EVERY) == len({(m.file, m.text, m.replacement) for m in EVERY})
    for mutation in EVERY:
        assert mutation.text != mutation.replacement
        compile(mutation.source(), mutation.file, "exec")


@pytest.mark.parametrize(
    ("code", "harmless", "verdict"),
    [(0, False, "SURVIVED"), (1, False, "killed"), (0, True, "makes no difference"), (1, True, "MAKES A DIFFERENCE"),
     (2, False, "not tried"), (70, True, "not tried"), (-11, False, "not tried")],
)  # fmt: skip
def test_verdicts(code: int, harmless: bool, verdict: str) -> None:
    assert mutate.Outcome(code, "", "", 0.0).verdict(replace(EVERY[0], harmless=harmless)) == verdict


@pytest.mark.full
def test_a_sample_of_mutations_is_killed() -> None:
    """All of them: python tools/mutate.py."""
    done = subprocess.run([sys.executable, TOOLS / "mutate.py", "--sample", "20"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.full
def test_the_working_tree_stays_as_it_is_and_what_tests_do_not_import_is_not_called_killed() -> None:
    source = (mutate.ROOT / EVERY[0].file).read_bytes()
    script = (
        "import mutate; from dataclasses import replace; first = next(mutate.mutations());"
        "other = replace(first, tests=('tests/infer/geometry/test_slicing.py',));"
        "((_, found),) = mutate.run([other]); print(found.code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=TOOLS)
    assert done.stdout.strip() == str(mutate.NOT_IMPORTED), done.stdout + done.stderr
    assert (mutate.ROOT / EVERY[0].file).read_bytes() == source
