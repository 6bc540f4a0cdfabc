"""The report over many runs: tables, figures and one page of HTML. No torch."""
