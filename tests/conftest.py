import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def freed_memory_goes_back() -> Iterator[None]:
    """`mona train` called in this process must not change malloc for the tests that measure memory after it."""
    with mock.patch("mona_train.allocator.keep_freed_memory"):
        yield
