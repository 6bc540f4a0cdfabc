"""Tables and figures: what a reader sees."""
