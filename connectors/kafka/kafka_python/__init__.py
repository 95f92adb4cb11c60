"""The client kafka-python."""
