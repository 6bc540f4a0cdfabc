"""The bottleneck in isolation: experiments that need no language model; a house of its own."""
