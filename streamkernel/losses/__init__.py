"""Losses: their value, derivative and bounds."""

from __future__ import annotations

from streamkernel.losses.kinds import (
    Absolute,
    Correntropy,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    Sigmoid,
    SmoothHinge,
    Softmax,
    Square,
    SquaredHinge,
)
from streamkernel.losses.loss import Loss, curvature, derivative, value

__all__ = [
    "Absolute",
    "Correntropy",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Quantile",
    "Sigmoid",
    "SmoothHinge",
    "Softmax",
    "Square",
    "SquaredHinge",
    "curvature",
    "derivative",
    "resolve_loss",
    "value",
]

_BY_NAME: dict[str, Loss] = {
    "logistic": Logistic(),
    "softmax": Softmax(),
    "hinge": Hinge(),
    "squared_hinge": SquaredHinge(),
    "smooth_hinge": SmoothHinge(),
    "sigmoid": Sigmoid(),
    "square": Square(),
    "huber": Huber(),
    "epsilon_insensitive": EpsilonInsensitive(),
    "absolute": Absolute(),
    "quantile": Quantile(),
    "correntropy": Correntropy(),
}


def resolve_loss(loss: str | Loss, for_classes: bool | None) -> Loss:
    """Return a loss given by name or itself, or raise an error if it does not suit the task.

    Parameters
    ----------
    loss : str or Loss
        A loss or its name: ``"logistic"``, ``"softmax"``, ``"hinge"``, ``"squared_hinge"``, ``"smooth_hinge"``,
        ``"sigmoid"`` for classes, ``"square"``, ``"huber"``, ``"epsilon_insensitive"``, ``"absolute"``,
        ``"quantile"``, ``"correntropy"`` for numbers.
    for_classes : bool or None
        ``True`` if targets are classes, ``False`` if they are numbers, ``None`` for an estimator with its own loss.

    Raises
    ------
    ValueError
        If the name is unknown, or the loss is for the other task.

    Examples
    --------
    >>> resolve_loss("huber", for_classes=False)
    Huber(delta=1.0)
    """
    fitting = [name for name, candidate in _BY_NAME.items() if candidate.for_classes == for_classes]
    resolved = loss if isinstance(loss, Loss) else _BY_NAME.get(loss) if isinstance(loss, str) else None
    if resolved is None or resolved.for_classes != for_classes:
        kind = "classification" if for_classes else "regression"
        raise ValueError(f"Expected a loss for {kind}, one of {', '.join(fitting)}, got {loss!r}")
    return resolved
