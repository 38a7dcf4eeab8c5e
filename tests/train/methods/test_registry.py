"""Which methods there are, what their stages are, and what is said of one that does not exist."""

import pytest

from mona_infer.errors import InputError
from mona_train.methods.acr import ACR
from mona_train.methods.glcon import GLCon
from mona_train.methods.mean_teacher import MeanTeacher
from mona_train.methods.registry import method_named, methods, pretraining, stages_of
from mona_train.methods.supervised import Supervised


def test_pretraining_is_kept_left_out_or_put_before_another_method():
    assert stages_of("mona") == (GLCon, ACR)
    assert stages_of("mona", "none") == (ACR,)
    assert stages_of("mona", "glcon") == (GLCon, ACR)
    assert stages_of("unet-l", "glcon") == (GLCon, Supervised)
    assert stages_of("mean-teacher", "supervised") == (Supervised, MeanTeacher)
    assert list(pretraining()) == ["byol", "glcon", "isd", "knn-moco", "moco", "simclr", "supervised"]


def test_every_method_says_what_it_is():
    for name, method in methods().items():
        assert method.name == name and method.stages and 2000 < method.year < 2100
        assert method.summary and method.paper and len(f"{name} {method.summary} {method.paper}") < 110


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"unknown method 'monna'; did you mean mona\? choose one of .*unet-l"):
        method_named("monna")
    with pytest.raises(InputError, match="unknown pre-training 'momo'; choose 'none' or 'byol' or 'glcon' or "):
        stages_of("mona", "momo")
