"""Cohorts: what is in a list of scans, a part of it, and its scans on the workers of a Dask cluster.

Dask itself is imported only where a cluster is asked for: it takes two seconds.
"""
