"""The page over finished runs. No torch."""
