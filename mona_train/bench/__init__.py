"""Rows of the paper's tables: run, gathered, compared and shown beside the published numbers."""
