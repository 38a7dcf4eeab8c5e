"""Runtimes for the network: `base` has the protocol and the registry, every other file is one runtime."""
