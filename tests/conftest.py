import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def freed_memory_goes_back() -> Iterator[None]:
    """`mona train` called in this process must not change malloc for the tests that measure memory after it."""
    with mock.patch("mona_train.engine.allocator.keep_freed_memory"):
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests counted (`record_property("count", ...)`): output of tests that pass is not shown otherwise."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ())]
    counts = [value for report in reports for name, value in report.user_properties if name == "count"]
    if counts:
        terminalreporter.section("counts")
        for line in sorted(counts):
            terminalreporter.write_line(line)
