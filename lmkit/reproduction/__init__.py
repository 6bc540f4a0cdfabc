"""Published tables and figures, each by one command: training, measurements and the page."""
