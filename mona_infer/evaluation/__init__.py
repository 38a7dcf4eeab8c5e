"""Masks against references: the metrics, how a set of cases is measured, the table."""
