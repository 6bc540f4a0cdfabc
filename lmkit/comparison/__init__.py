"""Groups of finished runs, the statistics that compare them, published values. No torch."""
