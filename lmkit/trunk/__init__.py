"""Trunks: token ids to context vectors."""
