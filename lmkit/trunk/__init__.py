"""Recurrent trunks: token ids to context vectors."""
