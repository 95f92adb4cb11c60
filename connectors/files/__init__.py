"""Files as sources and sinks: one or many, plain or compressed, rotated, and shared by several processes."""
