"""Coverage-guided fuzzing of every reader in turn: `make fuzz`, or `python tests/fuzz/run.py nifti --seconds 600`.

What a target has learned is kept in build/fuzz/TARGET and extended by the next run; an input that breaks a reader's
promise is written to build/fuzz/TARGET-findings, and its traceback printed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
BUILD = TESTS.parent / "build" / "fuzz"
LONGEST = 1 << 14  # bytes of an input
# What libFuzzer itself watches: seconds for one input, and megabytes of the process (torch alone takes 300).
LIMITS = ("-timeout=30", "-rss_limit_mb=1024")
WATCHED = ("mona_infer", "mona_train", "pydicom", "tomllib")
PROGRESS = re.compile(r"#(\d+)\s.*?cov: (\d+) ft: (\d+)")


def main() -> int:
    sys.path.insert(0, str(TESTS))
    from fuzz.targets import NAMES

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--seconds", type=int, default=3600, help="for all of them together (default: 3600)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # the process that fuzzes one target
    options = parser.parse_args()
    names = options.targets or list(NAMES)
    if unknown := set(names) - set(NAMES):
        parser.error(f"unknown target {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    if options.here:
        fuzz(names[0], options.seconds)  # does not return
    findings = sum(watched(name, max(1, options.seconds // len(names))) for name in names)
    return 1 if findings else 0


def watched(name: str, seconds: int) -> int:
    """Fuzz one target in a process of its own, because a finding ends it; says what was run, returns the findings."""
    kept = BUILD / f"{name}-findings"
    kept.mkdir(parents=True, exist_ok=True)
    before, began = set(kept.iterdir()), time.monotonic()
    command = [sys.executable, __file__, name, "--here", "--seconds", str(seconds)]
    executions = coverage = features = 0
    tail: list[str] = []
    with subprocess.Popen(
        command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if match := PROGRESS.match(line):
                executions, coverage, features = map(int, match.groups())
            elif not line.startswith(("INFO:", "NEW", "#")):
                tail = [*tail[-60:], line]
    found = sorted(set(kept.iterdir()) - before)
    minutes = (time.monotonic() - began) / 60
    print(f"{name}: {executions:,} executions, cov {coverage}, ft {features}, {len(found)} findings, {minutes:.1f} min")
    if found or run.returncode:
        print("".join(tail), *(f"  {path}" for path in found), sep="\n", flush=True)
    return len(found) or int(run.returncode != 0)


def fuzz(name: str, seconds: int) -> None:
    import atheris

    # The finder of an editable install hides the sources from atheris: it gets what is not found here, the C++ part.
    sys.path.insert(0, str(TESTS.parent))
    sys.meta_path.sort(key=lambda finder: type(finder).__name__.startswith("ScikitBuild"))
    with atheris.instrument_imports(include=list(WATCHED)):
        from fuzz import house
        from fuzz.targets import target

        reader = target(name)
        seeds = list(reader.seeds())  # imports what it reads with
    learned = BUILD / name
    learned.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (learned / f"seed-{number}").write_bytes(seed)
    words = BUILD / f"{name}.dict"
    words.write_text("".join(f'"{escaped(word)}"\n' for word in reader.DICTIONARY))
    folder = Path(tempfile.mkdtemp(prefix="mona-fuzz-"))
    arguments = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-dict={words}", *LIMITS]
    arguments += [f"-artifact_prefix={BUILD / f'{name}-findings'}/", str(learned)]
    atheris.Setup([sys.argv[0], *arguments], lambda data: house.answer(reader.read, data, folder) and None)
    atheris.Fuzz()


def escaped(word: bytes) -> str:
    return "".join(rf"\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
