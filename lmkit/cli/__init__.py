"""The `lmkit` command: a thin file a subcommand."""
