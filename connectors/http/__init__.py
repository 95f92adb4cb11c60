"""Events that come as requests over HTTP: a log of them on disk, and the source that reads it."""
