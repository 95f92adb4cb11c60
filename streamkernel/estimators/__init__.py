"""River's interface: the estimators, their files, and copies of them that only predict."""
