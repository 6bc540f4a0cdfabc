"""What a user got wrong, in one line."""
