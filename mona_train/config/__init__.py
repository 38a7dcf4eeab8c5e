"""What a run is made of: the settings, the presets, and how both are read from and written to TOML."""
