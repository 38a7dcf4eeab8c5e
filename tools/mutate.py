"""Would a test notice if a line of the method were wrong?  Tries the mutations of mutations.toml, one at a time.

    python tools/mutate.py                 all of them, two at a time: about ten minutes on two cores
    python tools/mutate.py acr glcon       only in files whose path contains one of these words
    python tools/mutate.py --sample 8      every eighth, and all that are marked `!`
    python tools/mutate.py --shuffle 0     in a random order (seed 0): wherever it is stopped, what ran is a fair sample
    python tools/mutate.py --check         only check that each text still occurs once in its file

A mutation is a text that occurs once in a file, its replacement, and why that is wrong.  The mutated file is a copy in
a temporary folder that the tests import instead of the original; the working tree is never changed.  Exit code 0: the
tests killed every mutation and passed with every harmless change; else 1.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import re
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("mutations.toml")
WORKERS = 2
LIMIT = 600  # seconds; a test that hangs has noticed the mutation
NOT_IMPORTED = 70  # exit code of tests that never saw the mutated file
# Imported once before forking, which saves half the time of a mutation.  None of these are our own modules.
COMMON = ("torch", "torch.nn.functional", "numpy", "scipy.ndimage", "nibabel", "lightning_fabric", "pytest")


@dataclass(frozen=True)
class Mutation:
    file: str
    text: str
    replacement: str
    why: str
    tests: tuple[str, ...]
    harmless: bool = False  # makes no difference, for the reason given, and is expected to survive
    always: bool = False  # part of every sample

    def source(self) -> str:
        """The mutated file."""
        source = (ROOT / self.file).read_text()
        found = source.count(self.text)
        if found != 1:
            raise LookupError(
                f"{self.file}: the text of a mutation occurs {found} times instead of once; if the line was rewritten, "
                f"rewrite its mutation in tools/{LIST.name}:\n    {self.text!r} -> {self.replacement!r}"
            )
        return source.replace(self.text, self.replacement)

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True)
class Outcome:
    code: int
    killer: str  # the first test that failed
    output: str
    seconds: float

    def verdict(self, mutation: Mutation) -> str:
        if self.code not in (0, 1):
            return "not tried"  # the tests did not run, or did not import the file
        if mutation.harmless:
            return "makes no difference" if self.code == 0 else "MAKES A DIFFERENCE"
        return "killed" if self.code == 1 else "SURVIVED"


def mutations() -> Iterator[Mutation]:
    for file, entry in tomllib.loads(LIST.read_text()).items():
        tests = tuple(f"tests/{name}" for name in entry["tests"])
        for harmless, rows in ((False, entry["wrong"]), (True, entry.get("harmless", []))):
            for text, replacement, why in rows:
                old, new = (part.replace("\\n", "\n") for part in (text, replacement))
                yield Mutation(file, old, new, why.lstrip("! "), tests, harmless, always=why.startswith("!"))


def run(mutations: list[Mutation]) -> Iterator[tuple[Mutation, Outcome]]:
    """Run the tests for each mutation's file until the first failure, each in its own process."""
    sys.stdout.flush()  # or every process would print what is still buffered
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for name in COMMON:
        importlib.import_module(name)
    waiting, running = list(reversed(mutations)), {}
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        while waiting or running:
            while waiting and len(running) < WORKERS:
                mutation = waiting.pop()
                home = Path(tempfile.mkdtemp(dir=folder))
                copy = home / Path(mutation.file).name
                copy.write_text(mutation.source())
                running[_start(mutation, copy, home / "output")] = mutation, home / "output", time.monotonic()
            number, status = os.wait()
            mutation, output, start = running.pop(number)
            code, text = os.waitstatus_to_exitcode(status), output.read_text()
            code = 1 if code == -signal.SIGALRM else code
            failed = re.search(r"^(?:FAILED|ERROR) \S*?([^/\s]+)(?: - |$)", text, re.MULTILINE)
            yield mutation, Outcome(code, failed[1] if failed else "", text, time.monotonic() - start)


def _start(mutation: Mutation, copy: Path, output: Path) -> int:
    if number := os.fork():
        return number
    code = NOT_IMPORTED
    try:
        signal.alarm(LIMIT)
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = _tests(mutation, copy)
        sys.stdout.flush()
    finally:
        os._exit(code)


def _tests(mutation: Mutation, copy: Path) -> int:
    """Exit code of pytest with one module loaded from the copy.

    By a finder of its own, because that of an editable install comes before any path; and with a look afterwards,
    because tests that imported the original would prove nothing.
    """
    import pytest

    package = [str((ROOT / mutation.file).parent)] if copy.name == "__init__.py" else None

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: Any) -> Any:
            if name == mutation.module:
                return spec_from_file_location(name, copy, submodule_search_locations=package)

    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    os.chdir(ROOT)
    options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-m", "not full and not gpu"]
    code = int(pytest.main([*options, *mutation.tests]))
    loaded = getattr(sys.modules.get(mutation.module), "__file__", None)
    return code if loaded == str(copy) else NOT_IMPORTED


def misfits(chosen: list[Mutation]) -> Iterator[str]:
    """Messages about mutations whose text is no longer in its file."""
    for mutation in chosen:
        try:
            mutation.source()
        except LookupError as error:
            yield str(error)


def baseline(chosen: list[Mutation]) -> str:
    """The output of the tests if they fail before anything is mutated."""
    tests = tuple(sorted({test for mutation in chosen for test in mutation.tests}))
    ((_, outcome),) = run([replace(chosen[0], replacement=chosen[0].text, tests=tests)])
    return "" if outcome.code == 0 else outcome.output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "words", nargs="*", help="mutate only files whose path contains one of these; default: all files"
    )
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="only every Nth mutation")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="in a random order")
    parser.add_argument("--check", action="store_true", help="check the texts, do not run tests")
    given = parser.parse_args()
    chosen = [m for m in mutations() if not given.words or any(word in m.file for word in given.words)]
    chosen = [m for n, m in enumerate(chosen) if n % given.sample == 0 or m.always]
    if given.shuffle is not None:
        random.Random(given.shuffle).shuffle(chosen)
    if not chosen:
        parser.error(f"no mutated file has {' or '.join(given.words)} in its path")
    outdated = list(misfits(chosen))
    if outdated or given.check:
        print(*outdated, f"{len(chosen) - len(outdated)} of {len(chosen)} mutations fit their files", sep="\n")
        return 1 if outdated else 0
    if wrong := baseline(chosen):
        print(wrong, "The tests fail before anything is mutated.", sep="\n")
        return 1
    failures = 0
    for mutation, outcome in run(chosen):
        verdict = outcome.verdict(mutation)
        good = verdict in ("killed", "makes no difference")
        failures += not good
        print(f"{verdict:19} {outcome.seconds:4.0f} s  {mutation.file}: {mutation.why}")
        print(f"{'':27}{outcome.killer}" if good else f"{mutation.text!r} -> {mutation.replacement!r}", flush=True)
        if verdict == "not tried":
            print("the tests do not import it" if outcome.code == NOT_IMPORTED else outcome.output[-2000:])
    print(f"{len(chosen) - failures} of {len(chosen)} as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
