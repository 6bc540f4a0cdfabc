"""Output heads: context vectors to distributions over words."""
