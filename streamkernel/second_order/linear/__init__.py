"""Functions linear in the standardised inputs, which learn by a Newton step at each example."""
