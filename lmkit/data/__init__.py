"""Token streams and the windows that training and evaluation read them in."""
