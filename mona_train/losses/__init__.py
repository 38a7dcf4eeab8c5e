"""The losses of all methods, each a function of tensors, or a module where it has memory."""
