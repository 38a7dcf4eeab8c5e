"""Files in and out: NIfTI, NRRD, MetaImage and DICOM to a Volume and back; names paired; writes all or nothing."""
