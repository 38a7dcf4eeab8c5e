import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

pytest.register_assert_rewrite("helpers")  # so that an assertion that fails there shows its values


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


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> Iterator[None]:
    """Two workers share two cores, and one thread adds up in one order; a test that asks for more puts it back."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
