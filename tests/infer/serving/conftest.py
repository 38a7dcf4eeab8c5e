import pytest
from helpers import models

pytest.importorskip("fastapi", reason="fastapi, of the extra `serve`, is not installed")
pytest.importorskip("httpx2", reason="httpx2, of the extra `dev`, is not installed")


@pytest.fixture
def model(tmp_path):
    return models.write(tmp_path / "bands.onnx")


@pytest.fixture
def client(tmp_path, model):
    from helpers.served import client_at

    with client_at(tmp_path, model=model) as made:
        yield made


@pytest.fixture(autouse=True)
def no_model_came_with_mona(monkeypatch, tmp_path_factory):
    from mona_infer.models import bundled

    monkeypatch.setattr(bundled, "FOLDER", tmp_path_factory.mktemp("bundled"))
    monkeypatch.delenv("MONA_MODEL", raising=False)
