# %% [markdown]
# # From scans to numbers, in Python
#
# Train a small network on drawn hearts, segment both frames of a heart that it has not seen, look at the mask, and
# compute the ejection fraction. About five minutes on a laptop; a smaller number in the environment variable STEPS
# makes it quicker and worse.

# %%
import os
import subprocess
from pathlib import Path

import numpy as np

from mona_infer import Segmenter, Volume
from mona_infer.geometry.slicing import slicing
from mona_infer.viewing.pictures import montage, overlay
from mona_train.phantom import heart

folder = Path("hearts")
steps = os.environ.get("STEPS", "800")

# %% [markdown]
# ## Train and export
#
# Training is a command, because it takes long, is resumed after interruptions, and writes a folder. `phantom` is a data
# set that is drawn instead of read; with your own scans it is the path of a folder (see the tutorial).


# %%
def mona(*words: str) -> None:
    done = subprocess.run(["mona", *words], capture_output=True, text=True)
    print(done.stdout[-1500:], done.stderr if done.returncode else "")
    done.check_returncode()


if not (folder / "run").exists():
    small = ["--preset", "quick", "--set", "pixels=64", "--set", "width=0.5"]
    mona("train", "--dataset", "phantom", "--ratio", "0.125", "--steps", steps, *small, "--out", str(folder / "run"))
mona("export", str(folder / "run"))

# %% [markdown]
# ## Segment
#
# A `Segmenter` is a model and an engine. Called with a `Volume`, it returns the mask as another `Volume` on the same
# grid. `read_volume("scan.nii.gz")` would read one from a file or a DICOM folder; here both frames of a new heart are
# drawn.

# %%
segmenter = Segmenter(folder / "run/model.onnx", largest=True)
print(segmenter.engine.description)

drawn = {frame: heart(99, frame) for frame in ("ED", "ES")}
masks: dict[str, Volume] = {frame: segmenter(scan.image) for frame, scan in drawn.items()}

# %% [markdown]
# ## Look
#
# `slicing` finds the slice axis and the upright orientation from the scan's geometry; its views copy nothing.

# %%
scan, mask, task = drawn["ED"].image, masks["ED"], segmenter.task
upright = slicing(scan.affine, task.slices, task.fallback)
planes, labels = upright.view(scan.voxels), upright.view(mask.voxels)  # slices rows columns
brightest = float(scan.voxels.max())
chosen = range(len(planes) // 4, len(planes), max(1, len(planes) // 4))
tiles = [(f"slice {n}", overlay(planes[n] / brightest, labels[n], task)) for n in chosen]
montage(folder / "overlay.png", [tiles], task)
print(f"wrote {folder / 'overlay.png'}")

# %% [markdown]
# ## Measure
#
# A mask is an array of class ids, so volumes are counting: voxels times the volume of a voxel.

# %%
ids = {label.name: label.id for label in segmenter.task.classes}


def millilitres(volume: Volume, name: str) -> float:
    return float(np.count_nonzero(volume.voxels == ids[name]) * np.prod(volume.spacing) / 1000)


for who, pair in (("predicted", masks), ("drawn", {frame: scan.label for frame, scan in drawn.items()})):
    ed, es = (millilitres(pair[frame], "LV") for frame in ("ED", "ES"))
    fraction = f"{100 * (ed - es) / ed:.0f} %" if ed else "undefined: no left ventricle was found"
    print(f"{who}: LV {ed:.0f} mL at ED, {es:.0f} mL at ES, ejection fraction {fraction}")
