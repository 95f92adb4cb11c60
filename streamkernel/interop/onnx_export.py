"""A frozen function as an ONNX model, traced from the formulas of `numpy_predictor` by tensors that record operations.

Sums over names, products of signs and sketches have formulas of their own, which resemble the predictor's.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamkernel.interop.frozen_function import freeze
from streamkernel.interop.numpy_predictor import FORMS, outputs, turned
from streamkernel.versions import package_version

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17
"""The version of ONNX's operators: of 2022, so that most runtimes know it."""
IR_VERSION = 8
"""The version of the file format that belongs to it."""


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
        import onnx

        self.onnx = onnx
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
        self.nodes.append(self.onnx.helper.make_node(kind, names, [out], **attributes))
        return Tensor(self, out, dtype or like)

    def constant(self, value: Any, dtype: Any) -> str:
        """Return the name of a constant."""
        array = np.asarray(value, dtype)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._known:
            self._known[key] = name = f"constant_{len(self._known)}"
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
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
        self.nodes.append(self.onnx.helper.make_node("TopK", of, names, axis=1, largest=0, sorted=1))
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
        kind = self.graph.onnx.helper.np_dtype_to_tensor_dtype(wanted)
        return self.graph.add("Cast", self, to=kind, dtype=wanted.name)

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


def additive(xp: Any, part: Any, arrays: Any, v: Any) -> tuple[Any, Any]:
    """Return Σ √v sign(ω) exp(2πi|ω| log v)."""
    re = im = 0.0
    for j, (size, sign) in enumerate(
        zip(abs(arrays["directions"]), np.where(arrays["directions"] > 0.0, 1.0, -1.0).astype(np.float32), strict=True)
    ):
        one = xp.take(v, [j], axis=1)
        c, s = turned(xp, xp.log(xp.maximum(one, 1.2e-38)) * part["shape"] * size)
        re, im = re + xp.sqrt(one) * sign * c, im + xp.sqrt(one) * sign * s
    return re, im


def sign_products(xp: Any, part: Any, arrays: Any, v: Any) -> tuple[Any, Any]:
    """Return the products of projections on signs, as many factors as each feature's degree."""
    re = arrays["weights"]
    for i in range(int(arrays["degrees"].max())):
        s = v @ np.where(arrays["words"] >> np.uint32(i) & np.uint32(1), 1.0, -1.0).astype(np.float32)
        re = re * xp.where(arrays["degrees"] > i, s, 1.0)
    return re + 0.0 * xp.take(v, [0], axis=1), None


def sketch(xp: Any, part: Any, arrays: Any, v: Any) -> tuple[Any, Any]:
    """Return circular convolutions of count sketches, as products of their Fourier transforms."""
    blocks, size = arrays["buckets"].shape[2], part["block"]
    re: Any = None
    im: Any = None
    angle = 2.0 * np.pi * np.arange(size) / size
    for bucket, sign in zip(arrays["buckets"], arrays["signs"], strict=True):
        turn = np.exp(-1j * bucket[:, :, None] * angle) * sign[:, :, None]
        turn = turn.reshape(len(turn), -1) * np.append(np.ones(len(turn) - 1), part["shape"])[:, None]
        c, d = ((v @ one[:-1].astype(np.float32) + one[-1].astype(np.float32)) for one in (turn.real, turn.imag))
        re, im = (c, d) if re is None else (re * c - im * d, re * d + im * c)
    back = np.exp(1j * np.arange(size)[:, None] * angle) / size**0.5
    re, im = (spectrum.reshape((-1, blocks, size)) for spectrum in (re, im))
    out = re @ back.real.astype(np.float32) - im @ back.imag.astype(np.float32)
    return out.reshape((-1, blocks * size)), None


ALL = FORMS | {"additive": additive, "sign_products": sign_products, "sketch": sketch}
"""All forms of features."""


def to_onnx(model: Any, features: Sequence[Hashable] | None = None) -> ModelProto:
    """Return a model as an ONNX graph, with the outputs that sklearn-onnx has.

    It has one input, ``X``: float64 of shape (rows, features), where NaN is a missing value. The metadata have the
    names of its columns as ``features``, and the labels as ``classes``, both as JSON. A regressor has the output
    ``variable``, shape (rows, targets); a classifier has ``label``, shape (rows,), strings or integers, and
    ``probabilities``, shape (rows, classes). A classifier of several labels has ``label``, 0 or 1, and
    ``probabilities`` that it is 1, both of shape (rows, labels). The names of several targets are in the metadata, as
    ``targets``.

    Inputs are float64 because the model scales them itself: as float32 a time of 1.7·10⁹ s would be off by a minute.
    Random features are float32 as in the model itself.

    Parameters
    ----------
    model : KernelClassifier, KernelRegressor, one of several targets, or Pipeline
        A model, which does not change. A pipeline may have River's ``StandardScaler``, ``MinMaxScaler`` or
        ``MaxAbsScaler`` in front of it.
    features : list of str or None, default None
        Names of the inputs, in the order of the columns of ``X``; ``None``: the names that the model has learned. The
        string ``"red"`` in the field ``"colour"`` is 1 in a column ``"colour=red"``, and 0 or NaN otherwise; such
        columns have to be listed.

    Raises
    ------
    ValueError
        If a step, the learner or the kernel cannot be exported, the names of the inputs are unknown, or labels are
        neither all strings nor all integers or Booleans; the message names it.
    ImportError
        If the extra ``onnx`` is not installed.

    Examples
    --------
    >>> import numpy, onnxruntime
    >>> from streamkernel import KernelRegressor
    >>> from streamkernel.interop import to_onnx
    >>> model = KernelRegressor(max_features=256)
    >>> for i in range(500):
    ...     model.learn_one({"x": i % 10}, float(i % 10))
    >>> session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    >>> (found,) = session.run(["variable"], {"X": numpy.array([[3.0]])})
    >>> round(abs(found.item() - model.predict_one({"x": 3})), 5)
    0.0
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError:
        raise ImportError("Expected the package onnx; install it with: pip install 'streamkernel[onnx]'") from None
    function = freeze(model, features)
    names, labels = function.about["features"], function.about["labels"]
    if None in names:
        raise ValueError(
            "Expected features=[...], the names of the columns, for a model that has learned strings, or that does not "
            'keep the names of its inputs; a string "red" in the field "colour" is the column "colour=red"'
        )
    graph, of_labels = Graph(), _labels(labels)
    output = outputs(graph, function.about, function.arrays, graph.input("X", "float64"), ALL)
    rows, double = "rows", TensorProto.DOUBLE
    targets, is_each = function.about.get("targets", [None]), function.about["link"] == "each"
    name = "probabilities" if labels or is_each else "variable"
    graph.nodes.append(helper.make_node("Identity", [output.name], [name]))
    if labels:
        kind = TensorProto.STRING if of_labels.dtype.kind in "OU" else TensorProto.INT64
        graph.nodes.append(helper.make_node("Identity", [graph.take(of_labels, graph.argmax(output)).name], ["label"]))
        out = [
            helper.make_tensor_value_info("label", kind, [rows]),
            helper.make_tensor_value_info("probabilities", double, [rows, len(labels)]),
        ]
    else:
        out = [helper.make_tensor_value_info(name, double, [rows, len(targets)])]
        if is_each:
            graph.nodes.append(helper.make_node("Cast", [(output > 0.5).name], ["label"], to=TensorProto.INT64))
            out.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, [rows, len(targets)]))
    inputs = [helper.make_tensor_value_info("X", double, [rows, len(names)])]
    made = helper.make_model(
        helper.make_graph(graph.nodes, type(model).__name__, inputs, out, list(graph.constants.values())),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="streamkernel",
        producer_version=package_version("streamkernel"),
    )
    about = {"features": names, "classes": labels} | ({"targets": targets} if targets != [None] else {})
    helper.set_model_props(made, {name: json.dumps(value) for name, value in about.items()})
    checker.check_model(made, full_check=True)
    return made


def _labels(labels: Sequence[Any]) -> Any:
    """Return labels as an array of integers or of strings."""
    if all(isinstance(label, str) for label in labels):
        return np.array(labels, object)
    if all(isinstance(label, (bool, int)) for label in labels):
        return np.array([int(label) for label in labels], np.int64)
    raise ValueError(f"Expected labels that are all strings, or all integers or Booleans, for ONNX, got {labels!r}")
