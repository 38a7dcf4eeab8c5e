"""Scans from and masks to stores that are not this machine's disk: s3://, zip:// and whatever else fsspec speaks.

A place is a text, never a Path, which would fold `s3://` into `s3:/`.  Packages are imported when a place is opened.
"""

from mona_infer.io.remote.listing import exists, find_scans, named_scans, names_in
from mona_infer.io.remote.place import is_remote
from mona_infer.io.remote.transfer import fetch, publish

__all__ = ["exists", "fetch", "find_scans", "is_remote", "named_scans", "names_in", "publish"]
