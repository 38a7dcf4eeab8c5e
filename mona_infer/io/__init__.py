"""Reading and writing NIfTI, NRRD, MetaImage and DICOM; matching file names; writes that are all or nothing."""
