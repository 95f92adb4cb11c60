"""kafka-python, as this package asks for it."""
