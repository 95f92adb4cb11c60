"""The configuration file: its tables, what is built from them, and errors that name what was expected."""
