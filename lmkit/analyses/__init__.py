"""Tables, figures and tests over finished runs."""
