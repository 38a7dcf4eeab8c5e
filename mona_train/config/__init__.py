"""The settings of a run, the presets, and reading and writing them as TOML."""
