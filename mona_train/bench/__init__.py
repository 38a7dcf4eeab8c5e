"""`mona bench`: the rows of a table, one `mona train` process each, and one line of results for every finished row.

tables and lists say which rows; rows what a row is; runner starts, resumes and collects them; results keeps the lines.
"""
