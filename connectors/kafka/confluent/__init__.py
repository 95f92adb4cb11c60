"""confluent-kafka, as this package asks for it."""
