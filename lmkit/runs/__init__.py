"""What a run is: its identity, folder, lock, metrics and result. Imports no torch."""
