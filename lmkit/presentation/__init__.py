"""Tables, figures and published values: what a reader sees."""
