"""From a scan to its mask: finding scans, the pipeline, post-processing, outputs, warnings and the report."""
