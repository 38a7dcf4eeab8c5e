"""What can be asked of the server: `api` for the page and for programs, `monai_label` for 3D Slicer and OHIF."""
