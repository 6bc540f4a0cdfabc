"""Finished runs as one data frame: groups, tests, and what was published."""
