"""DICOM Segmentation (SEG): writing masks for the scan's own series, and reading masks from any program."""
