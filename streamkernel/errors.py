"""The errors of the library, apart from Python's own."""


class InputError(ValueError):
    """An example that cannot be learned from or predicted for; the message names the field and the value."""


class LabelError(InputError):
    """An example whose label is missing or unusable."""


class TooManyClassesError(LabelError):
    """An example with a new label, of a model that has learned as many as it may."""


class JoinError(InputError):
    """A record that cannot be joined with its other half: by its key, its time, or because that one is gone."""


class DivergedError(InputError):
    """An example that was refused because the steps have diverged."""


class NotFittedError(ValueError, AttributeError):
    """An attribute of a model that has not learned enough to have it; it is none until then, as for scikit-learn."""


class ModelFileError(ValueError):
    """A model file that is truncated, corrupt, of another format version or of another kind of model."""


class MergeError(ValueError):
    """Models that cannot be merged: their features, or what they learn, differ."""
