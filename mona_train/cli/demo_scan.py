"""The end of `mona demo`: a real scan through the model that comes with mona, where one is at hand."""

from __future__ import annotations

from pathlib import Path

from mona_infer.errors import MonaError


def try_real_scan(out: Path) -> tuple[str, list[Path]]:
    """One line for the user, and the files that were written: a mask and a picture, or nothing."""
    from mona_infer.models.bundled import best

    model = best()
    if model is None:
        return "", []
    try:
        return _segmented(model, out)
    except MonaError:  # no data here, or no ONNX Runtime
        return f"A real scan: mona segment SCAN --out mask.nii.gz uses {model.stem}, which comes with mona", []


def _segmented(model: Path, out: Path) -> tuple[str, list[Path]]:
    from mona_infer import Segmenter
    from mona_infer.io.nifti import write_mask
    from mona_infer.segmenting.statistics import preview, scores
    from mona_infer.viewing.pictures import montage
    from mona_train.data.adapters import locate
    from mona_train.data.split import published_validation

    adapter, source = locate("acdc")
    validation = set(published_validation("acdc"))  # no model may show off with a scan that it was trained on
    case = next((c for c in adapter.cases(source) if c.name in validation and c.label), None)
    if case is None or case.label is None:
        raise MonaError(f"{source} has no validation case with a label")
    found = Segmenter(model).segment(case.image())
    measured = ", ".join(f"{name} {score.dsc:.3f}" for name, score in scores(found, case.label()).items())
    mask, picture = out / f"{case.name}.nii.gz", out / f"{case.name}.png"
    write_mask(mask, found.mask)
    montage(picture, preview(found, case.name), found.stack.task)
    return f"A real scan, {case.name} of ACDC, with {model.stem}, which comes with mona: DSC {measured}", [
        mask,
        picture,
    ]
