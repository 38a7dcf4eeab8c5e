"""Data sets: adapters that find cases on disk, a cache of slices, published splits, streams of batches."""
