"""The bottleneck in isolation: experiments that need no language model, and take minutes."""
