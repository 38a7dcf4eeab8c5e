"""Writing a mask as a DICOM Segmentation (PS3.3 A.51) that refers to its source series, with highdicom.

BINARY, with one frame per slice and class that it contains, which every viewer reads.  (Label maps, PS3.3 A.86, are
smaller, but were only added to the standard in 2024, and few viewers support them.)  Segments are numbered from 1, in
the order of the Task's classes.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from pydicom.dataset import Dataset
from pydicom.valuerep import format_number_as_ds

from mona_infer import __version__
from mona_infer.errors import InputError, MissingPart
from mona_infer.io.atomic import atomic_path
from mona_infer.io.dicom.read import _ONE_AT_A_TIME
from mona_infer.io.dicom.segmentation.read import LABEL_ID
from mona_infer.io.dicom.slice_order import TILT
from mona_infer.models.file import Model
from mona_infer.system.optional_parts import install_command, requirements
from mona_infer.task import LabelClass
from mona_infer.volume import Volume

# Type 1 (PS3.5 7.4.1): without these, a segmentation refers to nothing.
NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "SOPClassUID", "FrameOfReferenceUID")
# Type 2: must be present but may be empty; anonymisers remove them.
MAY_BE_EMPTY = (
    *("PatientID", "PatientName", "PatientBirthDate", "PatientSex"),
    *("AccessionNumber", "StudyID", "StudyDate", "StudyTime"),
)
# Lower-case class names -> SNOMED CT concepts (keywords of pydicom's dictionary).
CONCEPTS = {
    "rv": "RightVentricle",
    "lv": "LeftVentricle",
    "myo": "LeftVentricleMyocardium",
    "la": "LeftAtrium",
    "ra": "RightAtrium",
    "aa": "AscendingAorta",
    "pa": "PulmonaryArtery",
    "liver": "Liver",
    "tumor": "Neoplasm",
    "tumour": "Neoplasm",
}
SERIES_NUMBER = 900  # far from the numbers that scanners use; viewers sort by it


def check_highdicom() -> Any:
    try:
        import highdicom
    except ImportError as error:
        needed = install_command(*requirements("dicom-seg").values())
        raise MissingPart(f"writing a DICOM-SEG needs highdicom, which is not installed; run: {needed}") from error
    return highdicom


def check_origin(volume: Volume) -> None:
    """Refuse a scan that a segmentation cannot refer to, before the network starts."""
    if not volume.origin:
        raise InputError(
            f"{volume.source} is not DICOM: there is no series for a DICOM-SEG to refer to; write its mask as .nii.gz"
        )
    files = {id(header): header for header, _ in volume.origin}.values()
    for header in files:
        absent = [keyword for keyword in NEEDED if not header.get(keyword)]
        if absent:
            raise InputError(
                f"{volume.source}: a DICOM-SEG needs its {absent[0]}, which is missing; write its mask as .nii.gz"
            )
    framed = any("PerFrameFunctionalGroupsSequence" in header for header in files)
    if not framed and len(files) < len(volume.origin):
        raise InputError(
            f"{volume.source}: its slices are tiles of one image (a mosaic), which a DICOM-SEG cannot refer to; "
            "write its mask as .nii.gz"
        )
    if framed and len(files) > 1:
        raise InputError(
            f"{volume.source}: its stack is spread over {len(files)} multi-frame files, but a DICOM-SEG refers to one; "
            "write its mask as .nii.gz"
        )


def warnings_of(mask: Volume) -> list[str]:
    """Warnings about readers that misread a DICOM-SEG of this mask."""
    row, column, step = (mask.affine[:3, axis] / mask.spacing[axis] for axis in range(3))
    if abs(np.cross(row, column) @ step) > np.cos(np.radians(TILT)):
        return []
    return [
        "the stack is tilted: the DICOM-SEG is correct, since every frame has its position, "
        "but pydicom-seg and dcmqi ignore the tilt; write a .nii.gz for such programs"
    ]


def write_seg(path: Path, mask: Volume, model: Model) -> None:
    """Write the mask of a scan that was read from DICOM with its `origin`, all or nothing."""
    highdicom = check_highdicom()
    ids = [c.id for c in model.task.classes]
    numbers = np.zeros(max(ids) + 1, np.uint8 if len(ids) <= 256 else np.uint16)
    numbers[ids] = range(len(ids))
    log = logging.getLogger("highdicom")
    before, log.disabled = log.disabled, True  # its warnings about empty masks and odd sources do not help the user
    try:
        with _ONE_AT_A_TIME, warnings.catch_warnings():  # the next scan is read at the same time
            warnings.simplefilter("ignore")
            made = highdicom.seg.Segmentation(
                source_images=_sources(mask),
                pixel_array=numbers[np.asarray(mask.voxels).transpose(2, 1, 0)],  # k rows columns
                segmentation_type=highdicom.seg.SegmentationTypeValues.BINARY,
                segment_descriptions=[
                    _description(highdicom, n, c, model) for n, c in enumerate(model.task.classes[1:], start=1)
                ],
                series_instance_uid=highdicom.UID(),
                series_number=SERIES_NUMBER,
                sop_instance_uid=highdicom.UID(),
                instance_number=1,
                manufacturer="mona",
                manufacturer_model_name=model.task.name,
                software_versions=__version__,
                device_serial_number=model.seal[:16],
                series_description=f"mona {model.task.name}",
                content_label="MONA",
            )
            _name_frames(made, mask)
            with atomic_path(path) as temporary:
                made.save_as(temporary)
    except (AttributeError, ValueError, TypeError, KeyError) as error:  # how highdicom refuses an odd source
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{mask.source}: a DICOM-SEG cannot refer to it ({reason}); write its mask as .nii.gz"
        ) from error
    finally:
        log.disabled = before


def _sources(mask: Volume) -> list[Any]:
    """Headers of the slices as highdicom expects them, with what anonymisers remove and writers round restored.

    highdicom copies their geometry into the Segmentation, and readers rebuild the volume from it.  So they get the
    mask's geometry: SimpleITK writes SpacingBetweenSlices 1 for slices 10 mm apart, and scanners round positions.
    """
    headers = [header[:] for header in {id(header): header for header, _ in mask.origin}.values()]  # copies
    for header in headers:
        for keyword in MAY_BE_EMPTY:
            if keyword not in header:
                setattr(header, keyword, "")
    orientation, measures, positions = _geometry(mask)
    if "PerFrameFunctionalGroupsSequence" in headers[0]:  # of a cine, only the frames of this time point
        headers[0].SharedFunctionalGroupsSequence = [
            _item(
                PlaneOrientationSequence=[_item(ImageOrientationPatient=orientation)],
                PixelMeasuresSequence=[_item(**measures)],
            )
        ]
        headers[0].PerFrameFunctionalGroupsSequence = [
            _item(PlanePositionSequence=[_item(ImagePositionPatient=position)]) for position in positions
        ]
        headers[0].NumberOfFrames = len(positions)
        return headers
    for header, position in zip(headers, positions, strict=True):
        header.ImageOrientationPatient, header.ImagePositionPatient = orientation, position
        for keyword, value in measures.items():
            setattr(header, keyword, value)
    return headers


def _geometry(mask: Volume) -> tuple[list[str], dict[str, Any], list[list[str]]]:
    """Orientation, pixel measures and the position of each slice (PS3.3 C.7.6.16.2.1, .3 and .4) of a mask's grid."""
    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ mask.affine
    across, down, _ = mask.spacing
    row, column = lps[:3, 0] / across, lps[:3, 1] / down
    # The thickness equals the spacing, so that the volume of a voxel is the one that mona reports.
    # Both are measured along the normal: with a tilted gantry, only the positions include the shear.
    between = _decimals([abs(np.cross(row, column) @ lps[:3, 2])])[0]
    return (
        _decimals([*row, *column]),
        {"PixelSpacing": _decimals([down, across]), "SliceThickness": between, "SpacingBetweenSlices": between},
        [_decimals(lps[:3, 3] + k * lps[:3, 2]) for k in range(mask.shape[2])],
    )


def _decimals(values: Any) -> list[str]:
    """Decimal strings of at most 16 characters (PS3.5 6.2); + 0.0 turns -0.0 into 0.0."""
    return [format_number_as_ds(round(float(value), 12) + 0.0) for value in values]


def _item(**tags: Any) -> Dataset:
    item = Dataset()
    for keyword, value in tags.items():
        setattr(item, keyword, value)
    return item


def _name_frames(made: Any, mask: Volume) -> None:
    """For a multi-frame source, set the frame numbers in the file; highdicom numbered the frames it was given."""
    if "PerFrameFunctionalGroupsSequence" not in mask.origin[0][0]:
        return
    derived = [d for item in made.PerFrameFunctionalGroupsSequence for d in item.get("DerivationImageSequence", ())]
    sources = {id(source): source for d in derived for source in d.SourceImageSequence}  # segments share them
    for source in sources.values():
        source.ReferencedFrameNumber = mask.origin[int(source.ReferencedFrameNumber) - 1][1] + 1


def _description(highdicom: Any, number: int, c: LabelClass, model: Model) -> Any:
    from pydicom.sr.codedict import codes

    concept = CONCEPTS.get(c.name.lower())
    lesion = concept == "Neoplasm"
    description = highdicom.seg.SegmentDescription(
        segment_number=number,
        segment_label=c.name,
        segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure
        if lesion
        else codes.SCT.AnatomicalStructure,
        segmented_property_type=getattr(codes.SCT, concept)
        if concept
        else highdicom.sr.CodedConcept(c.name[:16], "99MONA", c.name[:64]),  # 99: a private scheme (PS3.16 8)
        algorithm_type=highdicom.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=highdicom.AlgorithmIdentificationSequence(
            name="mona", version=__version__, family=codes.DCM.ArtificialIntelligence, parameters={"model": model.seal}
        ),
        display_color=highdicom.color.CIELabColor.from_rgb(*c.colour),
    )
    description.SegmentDescription = LABEL_ID.format(c.id)  # segments are numbered from 1, ids come from the Task
    return description
