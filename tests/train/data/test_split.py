"""Splits: by patient, repeatable, duplicates never torn apart, published lists where they hold."""

from dataclasses import replace

import pytest
from helpers.caches import cache_of, cases

from mona_infer import InputError
from mona_train.data.split import LISTS, split


def published(name, slices=10):
    """A cache with every case the published lists of a dataset name."""
    names = sorted(
        {
            line.removesuffix(".h5").split("_slice_")[0]
            for p in LISTS.glob(f"{name}_t*.txt")
            for line in p.read_text().split()
        }
        | {line.removesuffix(".h5") for p in LISTS.glob(f"{name}_val.txt") for line in p.read_text().split()}
    )
    template = cases(1, 1, slices=slices)[0]
    return [
        replace(template, name=n, patient=n.split("_frame")[0], first=k * slices, first_label=k * slices, image_hash=n)
        for k, n in enumerate(names)
    ]


def people(cache, rows):
    return {case.patient for case in cache.cases for row in rows if row in case.rows}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5, None])
def test_no_patient_is_on_two_sides_and_twins_stay_together(seed, ratio):
    cache = cache_of(cases(20, twins=[(2, 7), (3, 11)]))
    found = split(cache, ratio, seed)
    sides = [people(cache, found.labelled), people(cache, found.unlabelled), {n.split("_")[0] for n in found.val}]
    for a in range(3):
        for b in range(a):
            assert not sides[a] & sides[b]
    for pair in ({"p02", "p07"}, {"p03", "p11"}):
        assert sum(bool(side & pair) for side in sides) == 1
    assert len(found.labelled) + len(found.unlabelled) + 3 * len(found.val) == 20 * 6
    assert split(cache, ratio, seed) == found


def test_seeds_differ_and_the_ratio_counts_patients():
    cache = cache_of(cases(40))
    drawn = [split(cache, 0.1, seed).labelled_patients for seed in range(6)]
    assert len(set(drawn)) > 1
    assert {len(people) for people in drawn} == {3}  # a tenth of the 34 left for training
    assert len(split(cache, 0.001).labelled_patients) == 1


def test_all_labels_are_used_by_default_and_unlabelled_cases_stay_so():
    cache = cache_of(cases(4, unlabelled=(1, 3)))
    found = split(cache)
    assert found.labelled_patients == ("p00", "p02")
    assert found.unlabelled_patients == ("p01", "p03")
    assert found.val == ()  # fewer than five labelled patients: the last checkpoint counts


def test_five_labelled_patients_give_a_validation_set():
    assert len(split(cache_of(cases(5))).val) == 2
    cache = cache_of(cases(30, unlabelled=range(4, 30)))
    assert split(cache).val == ()


def test_a_dataset_that_says_its_parts_is_believed():
    cache = cache_of(cases(8, part=lambda n: "train" if n < 5 else "val" if n < 6 else "test"))
    found = split(cache, 0.4)
    assert {n[:3] for n in found.val} == {"p05"}
    assert {n[:3] for n in found.test} == {"p06", "p07"}
    assert len(found.labelled_patients) == 2


@pytest.mark.parametrize(
    ("ratio", "patients"),
    [
        (0.01, {"patient099"}),
        (0.05, {"patient099", "patient038", "patient050"}),
        (0.10, {f"patient{n:03d}" for n in (99, 38, 50, 100, 58, 21, 49)}),
    ],
)
def test_acdc_as_published(ratio, patients):
    cache = cache_of(published("ACDC"), "acdc")
    found = split(cache, ratio)
    assert set(found.labelled_patients) == patients
    assert (len(found.val), len(found.test)) == (20, 40)
    assert len(found.labelled) + len(found.unlabelled) == 140 * 10
    assert "published" in found.describe()
    assert people(cache, found.labelled) == patients
    assert split(cache, ratio, seed=1).labelled_patients != found.labelled_patients


def test_lits_as_published_without_empty_slices():
    entries = [replace(c, content=(0.0,) * 4 + (0.5,) * 6) for c in published("LiTS")]
    cache = cache_of(entries, "lits")
    found = split(cache, 0.05)
    assert set(found.labelled_patients) == {f"case{n:04d}" for n in (3, 1, 38, 37, 98)}
    assert len(found.labelled) == 5 * 6
    assert (len(found.val), len(found.test)) == (0, 31)


def test_mmwhs_one_percent_is_18_listed_slices_of_one_patient():
    listed = {42, 56, 61, 73, 81, 84, 106, 117, 119, 124, 132, 136, 144, 148, 157, 173, 179, 186}
    entries = published("MMWHS", slices=200)
    for backwards in (False, True):
        cache = cache_of([replace(c, reversed=backwards, content=(1.0,) * 200) for c in entries], "mmwhs")
        found = split(cache, 0.01)
        case = next(c for c in cache.cases if c.name == "ct_train_1018")
        numbers = {row - case.first + 1 for row in found.labelled}
        assert numbers == ({201 - n for n in listed} if backwards else listed)
        assert len(found.unlabelled) == 15 * 200 - 18
    assert split(cache, 0.1).labelled_patients == ("ct_train_1004", "ct_train_1018")


def test_a_missing_labelled_case_is_named():
    cache = cache_of([c for c in published("ACDC") if c.patient != "patient099"], "acdc")
    with pytest.raises(InputError, match="patient099"):
        split(cache, 0.05)


@pytest.mark.parametrize("ratio", [0, -1, 1.5])
def test_a_ratio_that_is_none_is_refused(ratio):
    with pytest.raises(InputError, match="ratio"):
        split(cache_of(cases(3)), ratio)


@pytest.mark.parametrize(
    ("ratio", "words"), [(None, "has a label; check"), (0.5, "label when 50 % of the patients are")]
)
def test_without_any_label_it_says_so_and_not_which_option_was_left_out(ratio, words):
    unlabelled = [replace(case, first_label=None) for case in cases(6)]
    with pytest.raises(InputError, match=words) as failure:
        split(cache_of(unlabelled), ratio)
    assert "ratio" not in str(failure.value)


def test_a_published_dataset_that_is_not_whole_says_so():
    listed = published("ACDC")
    assert split(cache_of(listed, "acdc"), 0.05).warnings == ()
    gone = [n for n, case in enumerate(listed) if case.name.startswith("patient028")]
    extra = replace(listed[0], name="patient101_frame01", patient="patient101", image_hash="new")
    found = split(cache_of([*(c for n, c in enumerate(listed) if n not in gone), extra], "acdc"), 0.05)
    assert found.warnings == (
        "2 of 20 volumes of the published val list are missing: patient028_frame01, patient028_frame02",
        "1 volumes are not in any published list and are not used: patient101_frame01",
    )
    assert found.describe().splitlines()[1:] == [f"warning: {words}" for words in found.warnings]


@pytest.mark.parametrize("twin", range(6))
def test_an_image_that_is_learned_from_and_tested_too_is_named(twin):
    cache = cache_of(cases(8, frames=1, twins=[(twin, 7)], part=lambda n: "test" if n >= 6 else None))
    (words,) = split(cache).warnings
    assert words == (
        "1 test volumes are also training or validation volumes, so their scores are too optimistic: "
        f"p07_frame01 = p{twin:02d}_frame01"
    )


def test_a_class_that_the_labelled_patients_lack_is_named():
    have = [replace(case, voxels=(9, 9, 9, 0)) if case.patient != "p03" else case for case in cases(12)]
    for seed in range(6):
        found = split(cache_of(have), 0.1, seed)
        lacking = "p03" not in found.labelled_patients
        name = cache_of(have).task.classes[3].name
        expected = (f"no labelled training volume contains {name}, so it cannot be learned",) if lacking else ()
        assert found.warnings == expected
