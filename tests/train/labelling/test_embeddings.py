"""What is looked at is what `mona segment` gives to the network: the first look, the windows and the intensities."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mona_infer.geometry.probabilities import softmax
from mona_infer.segmenter import Segmenter
from mona_infer.task import CARDIAC
from mona_infer.volume import Volume
from mona_train.engine.first_look import tiny_network
from mona_train.engine.torch_engine import TorchEngine
from mona_train.labelling.embeddings import Viewer, unit
from mona_train.labelling.uncertainty import uncertainty
from mona_train.networks.unet import UNet

SQUEEZED = replace(CARDIAC, size=(32, 32))
SCALED = replace(CARDIAC, long_side=64, contrast=(1.0, 99.0), window=(32, 32))


class Recording(TorchEngine):
    def __init__(self, network):
        super().__init__(network)
        self.given, self.answers = [], []

    def run(self, slices):
        self.given.append(slices)
        self.answers.append(super().run(slices))
        return self.answers[-1]


@pytest.mark.parametrize(
    ("task", "slices"),
    [(SQUEEZED, 5), (SQUEEZED, 60), (replace(SCALED, first_look=True), 5), (SCALED, 3)],
    ids=["squeezed", "more slices than it looks at", "first look", "several windows"],
)
def test_a_scan_is_seen_as_it_is_segmented(task, slices):
    torch.manual_seed(0)
    network, first = UNet(4, width=0.25).eval(), tiny_network().eval() if task.first_look else None
    voxels = np.random.default_rng(0).normal(size=(50, 64, slices)).cumsum(axis=0).astype(np.float32)
    volume = Volume(voxels, np.diag([1.0, 1.0, 8.0, 1.0]))
    engine, look = Recording(network), TorchEngine(first) if first is not None else None
    Segmenter(task, engine=engine, first_look=look).segment(volume)
    given, answers = np.concatenate(engine.given), np.concatenate(engine.answers)
    windows = len(given) // slices
    assert (windows > 1) == (not task.squeezed)  # where the first look, which knows nothing, finds organs everywhere
    shown = np.unique(np.linspace(0, slices - 1, min(48, slices)).round().astype(int))
    rows = (shown[:, None] * windows + np.arange(windows)).ravel()
    with torch.no_grad():
        expected = network(torch.from_numpy(given[rows])[:, None]).bottleneck.mean((0, 2, 3))
    seen = Viewer(SimpleNamespace(task=task, network=network, look=first)).see(volume)
    assert seen.embedding == pytest.approx(expected.numpy(), abs=1e-5)
    assert len(seen.uncertainty.slices) == len(shown)
    if windows == 1:
        assert seen.uncertainty.overall == pytest.approx(uncertainty(softmax(answers[rows])).overall, abs=1e-5)


def test_a_patient_with_two_scans_has_the_same_weight():
    once, twice = unit([np.array([3.0, 4.0])]), unit([np.array([3.0, 0.0]), np.array([3.0, 8.0])])
    assert once == pytest.approx([0.6, 0.8]) and twice == pytest.approx(once)
    assert np.array_equal(unit([np.zeros(2)]), np.zeros(2))
