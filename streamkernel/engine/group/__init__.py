"""Members of a group that share one model: at each commit, a member merges its learning into the newest version."""
