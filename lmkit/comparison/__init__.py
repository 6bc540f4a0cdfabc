"""Groups of finished runs, and the statistics that compare them. No torch."""
