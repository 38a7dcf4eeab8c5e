"""A scan to its mask: which scans, the pipeline, post-processing, what is written and what is said about it."""
