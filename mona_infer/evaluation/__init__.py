"""Comparing masks with references: the metrics, and the table that shows them."""
