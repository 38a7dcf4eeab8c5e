"""Training: datasets, networks, methods, the training loop, export.

Imports point one way: mona_train -> mona_infer -> mona_kernels.
"""
