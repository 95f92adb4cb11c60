"""NumPy formulas as an ONNX graph, by tensors that record operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper


class Graph:
    """Nodes and constants, and the NumPy functions that formulas may use with its tensors.

    Examples
    --------
    >>> graph = Graph()
    >>> x = graph.input("X", "float64")
    >>> y = 2.0 * graph.exp(x) + 1.0
    >>> [node.op_type for node in graph.nodes]
    ['Exp', 'Mul', 'Add']
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], str] = {}

    def input(self, name: str, dtype: str) -> Tensor:
        """Return an input tensor of the graph."""
        return Tensor(self, name, dtype)

    def add(self, kind: str, *inputs: Any, dtype: str | None = None, **attributes: Any) -> Tensor:
        """Return the result of an operation; numbers and arrays among the inputs get the type of the first tensor."""
        like = next((one.dtype for one in inputs if isinstance(one, Tensor) and one.dtype != "bool"), "bool")
        names = [one.name if isinstance(one, Tensor) else self.constant(one, like) for one in inputs]
        out = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [out], **attributes))
        return Tensor(self, out, dtype or like)

    def constant(self, value: Any, dtype: Any) -> str:
        """Return the name of a constant."""
        array = np.asarray(value, dtype)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._known:
            self._known[key] = name = f"constant_{len(self._known)}"
            self.constants[name] = numpy_helper.from_array(array, name)
        return self._known[key]

    def integers(self, *values: int) -> Tensor:
        """Return a list of integers."""
        return Tensor(self, self.constant(values, np.int64), "int64")

    def isnan(self, x: Tensor) -> Tensor:
        """Return whether each entry is NaN."""
        return self.add("IsNaN", x, dtype="bool")

    def where(self, condition: Any, a: Any, b: Any) -> Tensor:
        """Return `a` where a condition holds, else `b`."""
        if not isinstance(condition, Tensor):
            condition = Tensor(self, self.constant(condition, np.bool_), "bool")
        return self.add("Where", condition, a, b)

    def concatenate(self, tensors: list[Tensor], axis: int) -> Tensor:
        """Return tensors side by side."""
        return self.add("Concat", *tensors, axis=axis)

    def take(self, x: Any, indices: Any, axis: int = 0) -> Tensor:
        """Return the entries or columns of some indices."""
        if not isinstance(x, Tensor):
            x = Tensor(self, self.constant(x, x.dtype), str(x.dtype))
        at = indices if isinstance(indices, Tensor) else self.integers(*indices)
        return self.add("Gather", x, at, axis=axis)

    def take_along_axis(self, x: Tensor, which: Tensor, axis: int) -> Tensor:
        """Return the entries of each row at its indices."""
        return self.add("GatherElements", x, which, axis=axis)

    def smallest(self, x: Tensor, k: int) -> Tensor:
        """Return the indices of the k smallest of each row, the smallest first; of equal ones the first comes first."""
        _, out = names = [f"topk_{len(self.nodes)}_{what}" for what in ("values", "indices")]
        of = [x.name, self.integers(k).name]
        self.nodes.append(helper.make_node("TopK", of, names, axis=1, largest=0, sorted=1))
        return Tensor(self, out, "int64")

    def argmax(self, x: Tensor) -> Tensor:
        """Return the index of the largest of each row."""
        return self.add("ArgMax", x, axis=1, keepdims=0, dtype="int64")

    def __getattr__(self, name: str) -> Any:
        """Return an elementwise function, such as `exp` and `maximum`."""
        kinds = {"rint": "Round", "maximum": "Max", "minimum": "Min"}
        kinds |= {one.lower(): one for one in ("Exp", "Log", "Sqrt", "Cos", "Sin", "Sign", "Tanh")}
        if name not in kinds:
            raise AttributeError(f"{type(self).__name__} has no function {name}")
        return lambda *inputs: self.add(kinds[name], *inputs)


def _operator(kind: str, *, swapped: bool = False, dtype: str | None = None) -> Any:
    """Return a method for an operation on a tensor and another operand, which comes first if they are swapped."""

    def apply(self: Tensor, other: Any) -> Tensor:
        return self.graph.add(kind, *((other, self) if swapped else (self, other)), dtype=dtype)

    return apply


class Tensor:
    """A tensor of a graph, with the arithmetic of a NumPy array."""

    __array_ufunc__ = None  # so that an array leaves the arithmetic to the tensor

    def __init__(self, graph: Graph, name: str, dtype: str) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def astype(self, dtype: Any) -> Tensor:
        """Return it as another type."""
        wanted = np.dtype(dtype)
        if wanted.name == self.dtype:
            return self
        return self.graph.add("Cast", self, to=helper.np_dtype_to_tensor_dtype(wanted), dtype=wanted.name)

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        """Return it in another shape."""
        return self.graph.add("Reshape", self, self.graph.integers(*shape))

    def max(self, axis: int, keepdims: bool) -> Tensor:
        """Return the largest along an axis."""
        return self.graph.add("ReduceMax", self, axes=[axis], keepdims=int(keepdims))

    def sum(self, axis: int, keepdims: bool) -> Tensor:
        """Return the sum along an axis."""
        return self.graph.add("ReduceSum", self, self.graph.integers(axis), keepdims=int(keepdims))

    def __abs__(self) -> Tensor:
        return self.graph.add("Abs", self)

    def __neg__(self) -> Tensor:
        return self.graph.add("Neg", self)

    __add__, __radd__ = _operator("Add"), _operator("Add", swapped=True)
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", swapped=True)
    __mul__, __rmul__ = _operator("Mul"), _operator("Mul", swapped=True)
    __truediv__, __rtruediv__ = _operator("Div"), _operator("Div", swapped=True)
    __matmul__, __rmatmul__ = _operator("MatMul"), _operator("MatMul", swapped=True)
    __le__, __gt__ = _operator("LessOrEqual", dtype="bool"), _operator("Greater", dtype="bool")
    __eq__ = _operator("Equal", dtype="bool")
    __hash__ = None  # type: ignore[assignment]
