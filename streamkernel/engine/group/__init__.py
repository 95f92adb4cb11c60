"""Members of a group that share one model: each merges what it has learned into the newest version at its commits."""
