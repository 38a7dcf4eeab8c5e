import pytest


@pytest.fixture
def silence(capfd):
    """Whatever the input, nothing is printed, by Python or by a codec."""
    yield
    assert capfd.readouterr() == ("", "")
