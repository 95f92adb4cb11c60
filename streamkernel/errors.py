"""The errors a user of the library can meet, apart from Python's own."""


class InputError(ValueError):
    """An example that cannot be learnt from or predicted for; the message names the field and the value."""


class ModelFileError(ValueError):
    """A model file that is truncated, corrupt, of another format version or of another kind of model."""
