"""Semi-supervised methods: one file per method; `base` defines a stage, `registry` finds the methods."""
