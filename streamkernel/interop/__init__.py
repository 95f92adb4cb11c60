"""Models for other programs: ONNX, MLflow, and a predictor that needs NumPy alone."""

from streamkernel.interop.frozen_function import to_numpy
from streamkernel.interop.onnx_export import to_onnx

__all__ = ["to_numpy", "to_onnx"]
