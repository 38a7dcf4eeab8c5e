"""The cases of a dataset by name, and their slices."""

from mona_infer.geometry.align import on_grid_of
from mona_infer.geometry.stack import SliceStack
from mona_train.data.adapters import adapter_named


def cases_of(name, folder):
    return {case.name: case for case in adapter_named(name).cases(folder)}


def slices_of(case, task):
    """Image and label as the network's slices, at native size."""
    image = case.image()
    stack = SliceStack(image, task)
    view = stack.slicing.view(image.voxels)
    grey = (image.intensities(view) - stack.low) / (stack.high - stack.low)
    return grey, stack.slicing.view(on_grid_of(case.label(), image).voxels)
