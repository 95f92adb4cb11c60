"""What a run is told of its inputs, its predictions, their quality in detail, and changes of the stream."""
