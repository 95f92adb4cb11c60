"""Dead letters that go back where their records came from, each once."""

from connectors.redrive.driven import Driven
from connectors.redrive.letters import Letter, file_letters, topic_letters
from connectors.redrive.targets import FileTarget, TopicTarget

__all__ = ["Driven", "FileTarget", "Letter", "TopicTarget", "file_letters", "topic_letters"]
