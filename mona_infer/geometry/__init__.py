"""From a Volume to the network's input and back: slice axis, orientation, size, intensity; comparing grids."""
