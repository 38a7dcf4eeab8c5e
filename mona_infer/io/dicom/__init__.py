"""DICOM: which files are one series, what their headers and pixels hold, where the slices lie."""
