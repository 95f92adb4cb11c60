"""Second-order learning: groups of features, Newton and constant steps, and the mixture of them."""
