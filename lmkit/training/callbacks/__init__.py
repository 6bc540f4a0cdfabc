"""What happens around training: weight averaging, checkpoints, metrics, spectra."""
