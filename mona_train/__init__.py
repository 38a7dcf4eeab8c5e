"""Training: datasets, networks, methods, the training loop, export.

Imports point one way: mona_train -> mona_infer -> mona_kernels.  Comments cite docs/method.md: "method 4.2" is its
section 4.2, "decision 4" and "difference 3" are entries of its sections 7 and 8.
"""
