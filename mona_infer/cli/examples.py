"""Example commands, shown at the end of each command's help."""

from __future__ import annotations

EXAMPLES = {
    "train": (
        "mona train --dataset acdc --ratio 0.05",
        "mona train --dataset path/to/Dataset042_Mine --ratio 0.1 --out runs/mine",
        "mona train --resume runs/mine",
    ),
    "export": (
        "mona export runs/mine",
        "mona export runs/mine --precision fp16",
    ),
    "segment": (
        "mona segment scan.nii.gz --out mask.nii.gz --preview mask.png",
        "mona segment scan.nii.gz --out mask.nii.gz --model acdc-5pc",
        "mona segment series/ --out mask.dcm",
        "mona segment imagesTr --out masks --reference labelsTr --stats stats.json",
        "mona segment 'patients/*/t1.nii.gz' --out masks --cluster local:4",
        "mona segment s3://hospital/scans --out s3://hospital/masks",
        "mona segment cine.nii.gz --out masks.nii.gz --frame all",
    ),
    "evaluate": (
        "mona evaluate mask.nii.gz reference.nii.gz",
        "mona evaluate masks labelsTr --classes 1=RV,2=Myo,3=LV --csv scores.csv",
        "mona evaluate masks labelsTr --tolerance 1 --json | jq .mean.dsc",
    ),
    "label": (
        "mona label next acdc",
        "mona label next path/to/Dataset042_Mine --run runs/mine --count 3",
        "mona label next path/to/Dataset042_Mine --serve",
    ),
    "bench": (
        "mona bench acdc --preset quick --ratios 0.05 --dry-run",
        "mona bench components --preset quick --jobs 2",
        "mona bench mine.toml --seeds 0,1",
        "mona bench add runs/acdc-mona-5pc",
    ),
    "view": (
        "mona view scan.nii.gz mask.nii.gz",
        "mona view scan.nii.gz mask.nii.gz --reference label.nii.gz --classes 1=RV,2=Myo,3=LV --out page.html",
    ),
    "serve": (
        "mona serve",
        "mona serve path/to/Dataset042_Mine",
        "mona serve Dataset042_Mine --host 0.0.0.0",
    ),
    "demo": ("mona demo", "mona demo --out demo --steps 200"),
    "models": ("mona models", "mona models acdc-5pc", "mona models --json"),
    "doctor": ("mona doctor", "mona doctor --json"),
}


def shown(command: str) -> str | None:
    """The examples of a command as shown in its help; None if it has none."""
    return "\n".join(["Examples:", *(f"  {line}" for line in EXAMPLES[command])]) if command in EXAMPLES else None
