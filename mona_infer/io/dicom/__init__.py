"""Reading DICOM: which files form a series, their headers and pixels, and the positions of the slices."""
