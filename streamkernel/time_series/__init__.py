"""Transformers that add earlier values and the time to the inputs."""

from streamkernel.time_series.calendar import Calendar
from streamkernel.time_series.history import HistoryTransformer, with_history
from streamkernel.time_series.lags import Lags
from streamkernel.time_series.last_target import LastTarget

__all__ = ["Calendar", "HistoryTransformer", "Lags", "LastTarget", "with_history"]
