"""What a run observes of its inputs and predictions, their quality in detail, and changes of the stream."""
