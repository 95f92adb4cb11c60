"""Predict with a model that was exported from streamkernel: this file and NumPy are all it takes.

    from numpy_predictor import Predictor
    model = Predictor("model.npz")
    model.predict_one({"size": 80.0, "colour": "red"})

``python numpy_predictor.py model.npz < examples.jsonl`` prints a line of JSON for each line of JSON.
"""

import json
import sys
from hashlib import blake2b
from typing import Any

import numpy as np

EDGE = 3.0**0.5
LARGEST = 1e30


class Predictor:
    """A model in a file; `features` are the names of the columns of arrays, ``None`` for one known by its hash."""

    def __init__(self, path: str) -> None:
        with np.load(path, allow_pickle=False) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.about = json.loads(str(self.arrays.pop("about")))
        if self.about["version"] != 1:
            raise ValueError(f"Expected a model of version 1, got {self.about['version']} - in {path}")
        self.features = [tuple(name) if isinstance(name, list) else name for name in self.about["features"]]
        self.labels, self.targets = self.about["labels"], self.about.get("targets")
        self._columns = {int(one): i for i, one in enumerate(self.arrays.pop("hashes"))}

    def predict_one(self, x: Any) -> Any:
        """Return the number or the label for a dictionary of numbers and strings, or a dictionary of them by target.

        None and NaN are missing values.
        """
        prediction = self.predict(self._row(x))[0]
        if self.targets:
            return dict(zip(self.targets, prediction.tolist(), strict=True))
        return prediction if self.labels else float(prediction)

    def predict_proba_one(self, x: Any) -> dict[Any, Any]:
        """Return the probability of each label for a dictionary, or of true and false by target."""
        if self.about["link"] == "identity":
            raise ValueError("Expected a model of labels, got one that predicts numbers")
        probabilities = self.predict_proba(self._row(x))[0].tolist()
        if self.targets:
            return {name: {False: 1.0 - up, True: up} for name, up in zip(self.targets, probabilities, strict=True)}
        return dict(zip(self.labels, probabilities, strict=True))

    def predict(self, X: Any) -> Any:
        """Return the numbers or labels of the rows of an array, shape (rows, features), a column for each of several
        targets; NaN is a missing value.
        """
        predictions = self.predict_proba(X)
        if self.targets:
            return predictions > 0.5 if self.about["link"] == "each" else predictions
        return [self.labels[i] for i in predictions.argmax(axis=1)] if self.labels else predictions[:, 0]

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the labels, shape (rows, labels), or the numbers, shape (rows, targets)."""
        X = np.asarray(X, np.float64)
        if X.ndim != 2 or X.shape[1] != len(self.features) or (np.abs(X) > LARGEST).any():
            raise ValueError(f"Expected rows of {len(self.features)} numbers of usable size, got shape {X.shape}")
        with np.errstate(invalid="ignore"):
            predictions = outputs(np, self.about, self.arrays, X)
        if not np.isfinite(predictions).all():
            raise ValueError("Expected numbers that the kernel can read, got some out of its domain")
        return predictions

    def _row(self, x: Any) -> Any:
        if not isinstance(x, dict):
            raise TypeError(f"Expected a dictionary of features, got {type(x).__name__} - at x")
        row = np.full((1, len(self.features)), np.nan)
        for name, value in x.items():
            if value is None or value != value:
                continue
            at, is_text = self._columns.get(hash64(name)), isinstance(value, str)
            if is_text and at is None and self.about["strings"]:
                at, value = self._columns.get(hash64(f"{name}={value}")), 1.0
                if at is None:  # a string that was never learned, as if it were missing
                    continue
            elif at is None:
                raise ValueError(f"Expected a name that the model has learned, got {name!r} - at x")
            elif is_text:
                raise ValueError(f"Expected a number, got {value!r} - at x[{name!r}]")
            row[0, at] = value
        return row


def hash64(name: Any) -> int:
    """Return the hash that identifies a name in a model."""
    return int.from_bytes(blake2b(as_bytes(name), digest_size=8).digest(), "little")


def as_bytes(name: Any) -> bytes:
    """Return the bytes of a name that are hashed."""
    if isinstance(name, str):
        return b"s" + name.encode("utf-8", "surrogatepass")
    if isinstance(name, tuple):
        parts = [as_bytes(part) for part in name]
        return b"t" + b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    number = float(name)
    return b"n" + (str(int(name)) if number.is_integer() else repr(number)).encode()


def outputs(xp: Any, about: Any, a: Any, x: Any, forms: Any = None) -> Any:
    """Return probabilities or numbers for rows `x` of float64; `xp` has the functions of NumPy."""
    f = scores(xp, about, a, x, forms or FORMS)
    if about["link"] == "sigmoid":
        up = 0.5 * (1.0 + xp.tanh(0.5 * f))
        return xp.concatenate([1.0 - up, up], axis=1)
    if about["link"] == "softmax":
        odds = xp.exp(f - f.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)
    if about["link"] == "rest":
        each = 0.5 * (1.0 + xp.tanh(0.5 * f)) + 1e-300
        return each / each.sum(axis=1, keepdims=True)
    if about["link"] == "each":
        return 0.5 * (1.0 + xp.tanh(0.5 * f))
    return 0.0 * f + 1.0 if about["link"] == "one" else f


def scores(xp: Any, about: Any, a: Any, x: Any, forms: Any) -> Any:
    """Return f, shape (rows, columns): the features by their coefficients, the linear function, and neighbours."""
    missing = xp.isnan(x)
    if "first.centre" in a:
        x = (x - a["first.centre"]) * a["first.factor"]
    v = x
    if "scale.centre" in a:
        z = (x - a["scale.centre"]) / a["scale.unit"]
        far = xp.sign(z) * EDGE * (1.0 + xp.log(xp.maximum(abs(z), EDGE) / EDGE))
        v = xp.where(abs(z) <= EDGE, z, far) / a["scale.divisor"] - a["scale.shift"]
    v = xp.where(missing, 0.0, v)
    f, others = features(xp, about, a, v, forms) + a["constant"], []
    if "linear.w" in a:
        s = xp.minimum(xp.maximum((x - a["linear.centre"]) / a["linear.unit"], -1e9), 1e9)
        s = xp.where(missing, 0.0, s)
        g = s @ a["linear.w"] + a["linear.constant"]
        if "squares.w" in a:
            near = xp.minimum(abs(xp.take(s, a["squares.columns"], axis=1)), 3.0)
            g = g + (near * near - 1.0) / 2.0**0.5 @ a["squares.w"]
        if "values.w" in a:
            is_value = abs(xp.take(x, a["values.columns"], axis=1) - a["values.values"]) <= a["values.tolerance"]
            g = g + is_value.astype(np.float64) @ a["values.w"]
        if "linear.bound" in a:
            others.append(a["linear.bound"] * xp.tanh(2.0 * g / a["linear.bound"]))
        else:
            others.append(xp.minimum(xp.maximum(g, -a["linear.reach"]), a["linear.reach"]))
        f = f + others[-1] * a["linear.share"]
    for near, share in zip(neighbours(xp, about, a, v), a.get("near.share", ()), strict=False):
        others.append(near)
        f = f + near * share
    if "span" in a:
        low, high, least, most = a["span"]
        for g in others:
            low, high = xp.minimum(xp.maximum(g, least), low), xp.maximum(xp.minimum(g, most), high)
        f = xp.minimum(xp.maximum(f, low), high)
    return f + a["offset"]


def neighbours(xp: Any, about: Any, a: Any, v: Any) -> Any:
    """Yield the predictions of the nearest neighbours among the last examples, of the smallest window first."""
    first, parts = 0, []
    for last in a.get("near.counts", np.zeros(0, int)).tolist():
        squares = 0.0
        inputs = zip(a["near.columns"], a["near.influence"], a["near.points"][:, first:last], strict=True)
        for column, influence, values in inputs:
            value = xp.minimum(xp.maximum(xp.take(v, [column], axis=1), -1e9), 1e9).astype(np.float32)
            squares = squares + influence * (values - value) * (values - value)
        parts.append(squares)
        first = last
        yield of_nearest(xp, about, a, parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=1), min(8, last))


def of_nearest(xp: Any, about: Any, a: Any, squares: Any, k: int) -> Any:
    """Return the prediction of the k nearest examples, given the squares of the distances."""
    which = getattr(xp, "smallest", smallest)(squares, k)
    nearest = xp.maximum(xp.take_along_axis(squares, which, axis=1).astype(np.float64), 1e-12)
    share = xp.take(a["near.weights"], which) / (nearest * nearest)
    share, columns = share / share.sum(axis=1, keepdims=True), []
    for y, offset in zip(a["near.answers"], a["offset"].tolist(), strict=True):
        answers = xp.take(y, which)
        if about["link"] == "identity":
            columns.append((share * (answers - offset)).sum(axis=1, keepdims=True))
            continue
        classes = range(max(2, about["classes"]))
        logs = [xp.log(k * xp.where(answers == c, share, 0.0).sum(axis=1, keepdims=True) + 0.5) for c in classes]
        if about["classes"] == 1:
            columns.append(logs[1] - logs[0])
            continue
        g = xp.concatenate(logs, axis=1) * (1.0 if about["is_softmax"] else 2.0)
        columns.append(g - g.sum(axis=1, keepdims=True) / about["classes"])
    return columns[0] if len(columns) == 1 else xp.concatenate(columns, axis=1)


def smallest(x: Any, k: int) -> Any:
    """Return the indices of the k smallest of each row, the smallest first; of equal ones the first comes first."""
    left, which = x.copy(), []
    for _ in range(k):
        which.append(left.argmin(axis=1, keepdims=True))
        np.put_along_axis(left, which[-1], np.inf, axis=1)
    return np.concatenate(which, axis=1)


def features(xp: Any, about: Any, a: Any, v: Any, forms: Any) -> Any:
    """Return the sum of all random features by their coefficients, shape (rows, columns)."""
    parts, f = [], 0.0
    for p, part in enumerate(about["parts"]):
        arrays = {name.split(".", 1)[1]: array for name, array in a.items() if name.startswith(f"part{p}.")}
        read = v * arrays["read"] if "read" in arrays else v
        if part["transform"] == "root":
            read = xp.sqrt(read)
        elif part["transform"] == "log":
            read = xp.log(1.0 + read / part["shift"])
        parts.append(forms[part["form"]](xp, part, arrays, (read * part["scale"]).astype(np.float32)))
    for t, members in enumerate(about["terms"]):
        re, im = parts[members[0]]
        for c, d in (parts[p] for p in members[1:]):
            if im is None:
                re, im = re * c, None if d is None else re * d
            elif d is None:
                re, im = re * c, im * c
            else:
                re, im = re * c - im * d, re * d + im * c
        f = f + re.astype(np.float64) @ a[f"term{t}.re"]
        if im is not None:
            f = f + im.astype(np.float64) @ a[f"term{t}.im"]
    return f


def turned(xp: Any, turns: Any) -> tuple[Any, Any]:
    """Return cosine and sine of turns in float32."""
    angle = 2.0 * np.pi * (turns - xp.rint(turns))
    return xp.cos(angle), xp.sin(angle)


def arc_cosine(xp: Any, part: Any, arrays: Any, v: Any) -> tuple[Any, Any]:
    """Return √2 sⁿ where s is positive."""
    s = xp.maximum(v @ arrays["directions"], 0.0)
    powers = {0: xp.sign(s), 1: s, 2: s * s}
    return 2.0**0.5 * powers[part["order"]], None


FORMS = {
    "phase": lambda xp, part, arrays, v: turned(xp, v @ arrays["directions"]),
    "linear": lambda xp, part, arrays, v: (v @ arrays["directions"], None),
    "exponential": lambda xp, part, arrays, v: (xp.exp(-(v @ arrays["directions"])), None),
    "arc_cosine": arc_cosine,
}

if __name__ == "__main__":
    model = Predictor(sys.argv[1])
    for line in sys.stdin:
        x = json.loads(line)
        is_number = model.about["link"] == "identity"
        print(json.dumps(model.predict_one(x) if is_number else model.predict_proba_one(x)))
