"""Return of dead letters to the source of their records, each exactly once."""

from streamkernel.connectors.redrive.letters import Driven, Letter, file_letters, topic_letters
from streamkernel.connectors.redrive.targets import FileTarget, TopicTarget

__all__ = ["Driven", "FileTarget", "Letter", "TopicTarget", "file_letters", "topic_letters"]
