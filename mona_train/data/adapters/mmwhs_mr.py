"""The MR scans of MM-WHS: mr_train_1001_image.nii.gz and so on.  See `mmwhs`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mona_infer.task import Intensity
from mona_train.data.adapters import mmwhs

# The slices stay inferior-superior: voxels are 1.6-2 x 1.6-2 x 2-3.2 mm, so that "stack" would find a thick axis in
# some scans and none in others, and one network would see two planes.
TASK = replace(mmwhs.TASK, name="mmwhs-mr", modality="MR", intensity=Intensity())

ADAPTER = replace(
    mmwhs.ADAPTER,
    name="mmwhs-mr",
    title="MM-WHS: whole-heart MR, 20 labelled scans, 7 structures",
    recognises=partial(mmwhs.recognises, "mr"),
    task=lambda folder: TASK,
    cases=partial(mmwhs.cases, "mr"),
    layout="mmwhs-mr/{mr_train_1001_image.nii.gz, mr_train_1001_label.nii.gz, ...}, flat or in folders",
    files=partial(mmwhs.files, "mr"),
)
