"""Responses to what was said: a house of its own, with a sequence-to-sequence model of any head."""
