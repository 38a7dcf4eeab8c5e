"""Semi-supervised methods: one file per method, `base` for what a stage is, `registry` for which there are."""
