"""The client confluent-kafka."""
