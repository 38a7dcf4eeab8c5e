"""From a Volume to what the network sees and back: slice axis, orientation, scale, intensity, grids compared."""
