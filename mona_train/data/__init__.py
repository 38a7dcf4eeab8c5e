"""Datasets: adapters that find cases on disk, one cache of slices, published splits, streams of batches."""
