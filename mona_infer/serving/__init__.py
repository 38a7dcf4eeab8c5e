"""`mona serve`: a page and an API on this machine; scans in, masks out, corrections into the data set, training.

`app` puts the rooms together: `safety` in front of everything, `routes/` for what can be asked, `jobs` for what is to
be done and `segmenting_lane` and `training_lane` for doing it, `scans` and `cases` for what there is.
"""
