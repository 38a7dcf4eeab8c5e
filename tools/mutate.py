"""Would a test notice if a line of the method were wrong?  Tries the mutations of mutations.toml, one at a time.

    python tools/mutate.py                 all of them, two at a time: about ten minutes on two cores
    python tools/mutate.py acr glcon       those of files whose path contains one of these words
    python tools/mutate.py --sample 8      every eighth, and all that are marked `!`
    python tools/mutate.py --check         only whether each text still occurs once in its file

A mutation is a text that occurs once in a file, what to put in its place, and why that is wrong.  The mutated file is
a copy in a temporary folder that the tests import instead of the original; the working tree is never written to.
Exit code 0: the tests killed every mutation, and let through every change that makes no difference; else 1.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("mutations.toml")
WORKERS = 2
LIMIT = 600  # seconds; a test that hangs has noticed

# Runs pytest with one module loaded from elsewhere.  A finder of its own, because the finder of an editable install
# comes before PYTHONPATH; and a look afterwards, because a test that imports the original would prove nothing.
RUN_TESTS = """
import sys
from importlib.util import spec_from_file_location
module, path, package, *arguments = sys.argv[1:]
class Finder:
    def find_spec(name, *_):
        if name == module:
            return spec_from_file_location(name, path, submodule_search_locations=[package] if package else None)
sys.meta_path.insert(0, Finder)
import pytest
code = pytest.main(arguments)
sys.exit(code if getattr(sys.modules.get(module), "__file__", None) == path else 70)
"""
NOT_IMPORTED = 70


@dataclass(frozen=True)
class Mutation:
    file: str
    text: str
    replacement: str
    why: str
    tests: tuple[str, ...]
    harmless: bool = False  # makes no difference: listed with the reason, and expected to survive
    always: bool = False  # part of every sample

    def source(self) -> str:
        """The mutated file."""
        source = (ROOT / self.file).read_text()
        found = source.count(self.text)
        if found != 1:
            raise LookupError(
                f"{self.file}: a mutation's text occurs {found} times instead of once; the line was probably rewritten, "
                f"so rewrite its mutation in tools/{LIST.name}:\n    {self.text!r} -> {self.replacement!r}"
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
            return "not tried"  # the tests did not run, or did not import the file: nothing was learned
        if mutation.harmless:
            return "makes no difference" if self.code == 0 else "MAKES A DIFFERENCE"
        return "killed" if self.code == 1 else "SURVIVED"


def mutations() -> list[Mutation]:
    return list(_read())


def _read() -> Iterator[Mutation]:
    for file, entry in tomllib.loads(LIST.read_text()).items():
        tests = tuple(f"tests/{name}" for name in entry["tests"])
        for harmless, rows in ((False, entry["wrong"]), (True, entry.get("harmless", []))):
            for text, replacement, why in rows:
                old, new = (part.replace("\\n", "\n") for part in (text, replacement))
                yield Mutation(file, old, new, why.lstrip("! "), tests, harmless, always=why.startswith("!"))


def run(mutation: Mutation) -> Outcome:
    """The tests that concern its file, until the first failure."""
    source, start = mutation.source(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder) / Path(mutation.file).name
        copy.write_text(source)
        package = str((ROOT / mutation.file).parent) if copy.name == "__init__.py" else ""
        # fmt: off
        command = [
            sys.executable, "-c", RUN_TESTS, mutation.module, str(copy), package,
            "-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-m", "not full and not gpu", *mutation.tests,
        ]
        # fmt: on
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return Outcome(1, f"none within {LIMIT} s", "", time.monotonic() - start)
    failed = re.search(r"^(?:FAILED|ERROR) \S*?([^/\s]+)(?: - |$)", done.stdout, re.MULTILINE)
    return Outcome(done.returncode, failed[1] if failed else "", done.stdout + done.stderr, time.monotonic() - start)


def misfits(chosen: list[Mutation]) -> list[str]:
    """What to say of the mutations whose text is no longer in its file."""
    found = []
    for mutation in chosen:
        try:
            mutation.source()
        except LookupError as error:
            found.append(str(error))
    return found


def baseline(chosen: list[Mutation]) -> str:
    """What is wrong with the tests before anything is mutated; empty where they pass."""
    tests = sorted({test for mutation in chosen for test in mutation.tests})
    first = chosen[0]
    outcome = run(Mutation(first.file, first.text, first.text, "", tuple(tests)))
    return "" if outcome.code == 0 else outcome.output


def sample(every: list[Mutation], step: int) -> list[Mutation]:
    return [m for n, m in enumerate(every) if n % step == 0 or m.always]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of the paths of files to mutate; none: all files")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="only every Nth mutation")
    parser.add_argument("--check", action="store_true", help="do not run tests")
    given = parser.parse_args()
    chosen = [m for m in mutations() if not given.words or any(word in m.file for word in given.words)]
    chosen = sample(chosen, given.sample)
    if not chosen:
        parser.error(f"no mutated file has one of {', '.join(given.words)} in its path")
    if outdated := misfits(chosen):
        print(*outdated, sep="\n")
        return 1
    if given.check:
        print(f"{len(chosen)} mutations fit their files")
        return 0
    if wrong := baseline(chosen):
        print(wrong, "The tests fail before anything is mutated.", sep="\n")
        return 1
    failures = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for mutation, outcome in zip(chosen, pool.map(run, chosen), strict=True):
            verdict = outcome.verdict(mutation)
            bad = verdict not in ("killed", "makes no difference")
            failures += bad
            print(f"{verdict:19} {outcome.seconds:4.0f} s  {mutation.file}: {mutation.why}", flush=True)
            print(f"{'':27}{outcome.killer}" if not bad else f"{mutation.text!r} -> {mutation.replacement!r}")
            if verdict == "not tried":
                reason = "the tests do not import it" if outcome.code == NOT_IMPORTED else outcome.output[-2000:]
                print(reason)
    print(f"{len(chosen) - failures} of {len(chosen)} as they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
