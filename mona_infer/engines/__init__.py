"""What runs a network: `base` has the protocol and the registry, each other file one runtime."""
