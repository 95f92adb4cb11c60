"""From an example to random features: names to hashes, values to rows, seeds to directions."""
