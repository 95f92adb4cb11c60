"""What first- and second-order learning share: the base class, the state, scores and threads."""
