"""The configuration file: its tables, the objects that they describe, and errors that name the expected value."""
