"""Masks as DICOM Segmentation (SEG): written for a scan's own series, read whoever wrote them."""
