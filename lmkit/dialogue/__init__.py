"""Models of dialogue: sequence to sequence, with any head."""
