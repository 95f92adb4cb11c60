"""Parts of docstrings that several classes, methods or functions have in common, written once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

Thing = TypeVar("Thing", bound=Callable[..., object])

_SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "References", "Examples")
"""The sections of a docstring, in their order."""

ESTIMATOR = """
Parameters
----------
kernel : Kernel or None, default None
    The kernel, as for :class:`~streamkernel.KernelClassifier`: by default four bandwidths on scaled inputs.
max_features : int or "auto" or None, default "auto"
    The largest number of random features, as for :class:`~streamkernel.KernelClassifier`.
l2 : float, default 0.0
    The regularisation λ of the objective (λ/2)‖f‖² + E[ℓ(f(x), y)].
pruning : Pruning or None, default None
    Periodic pruning to the most important features, in another thread.
refit : Refit or None, default None
    Periodic solution of the coefficients on recent events to a certified gap, in another thread. It needs
    ``learner="dsg"``.
cache_bytes : int, default 2**26
    Memory for random directions, in bytes. Directions that do not fit are generated again at every use, with the
    same result.
seed : int, default 0
    Seed of the random features. Models with the same seed have the same features.

Attributes
----------
targets : tuple
    The names of the targets.
learner_ : learners.Newton or learners.DSG
    The learner in use, with the values chosen for ``"auto"``.
kernel_ : Kernel
    The kernel in use, with its bandwidths.
n_features, n_seeds, n_steps, n_reused : int
    Numbers of random features, of blocks, of steps, and of steps that moved an old block.
n_prunings : int
    Number of prunings.
gap : float
    The certified primal-dual gap of the coefficients at the last refit.
objective : float
    The running regularised loss.
n_bounded_predictions, n_outlying_targets : int
    Numbers of learned examples whose prediction was limited to the range of targets, and whose target did not count in
    full because it was an outlier: with ``learner="dsg"`` in that range alone. Of several targets, the sums.
mixture_weights : dict
    The weights of the functions that f is a mixture of, by kind; of several targets, the means.
feature_importances_ : dict
    The share of each field in the change of f with the inputs, available after 256 examples.

Raises
------
ValueError
    If a parameter is out of its range or does not go with another; the message names it.

References
----------
Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014.
Li and Póczos, "Utilize Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods", UAI 2016.
Hazan, Agarwal and Kale, "Logarithmic Regret Algorithms for Online Convex Optimization", Machine Learning 2007.
"""

_ONE = """
Raises
------
InputError
    If a value is neither a finite number nor a string.
"""

_PREDICT_ONE = f"""
Parameters
----------
x : dict
    The features by name, as for :meth:`learn_one`.
{_ONE}"""

_PREDICT_MANY = """
Parameters
----------
X : data frame, array or sparse matrix of shape (n_examples, n_fields)
    The features, one row per example. For an array the predictions are an array.

Raises
------
InputError
    If a value is neither a finite number nor a string; the message names the column and the row.
"""

METHODS = {
    "learn_one": """
Parameters
----------
x : dict
    The features by name: numbers, or strings as indicators. A name that is missing, or whose value is ``None``, NaN,
    NaT or ``pandas.NA``, counts as 0; where inputs are scaled, a number that most examples have counts as its mean. A
    string is refused under a name that has had 16 numbers or more, and almost no strings.
y : float
    The target.
w : float, default 1.0
    The weight of the example, which counts as `w` examples in sums and means. With 0 it changes nothing.

Raises
------
InputError
    If a value, `y` or `w` is invalid; the message names the field. The model is unchanged.
""",
    "learn_many": """
Parameters
----------
X : data frame, array or sparse matrix of shape (n_examples, n_fields)
    The features, one row per example. An entry that a sparse matrix does not store is a zero.
y : series or array_like of shape (n_examples,)
    The targets.
w : float or array_like of shape (n_examples,), default None
    The weights, as for :meth:`learn_one`; 1 each by default.
verbose : bool, default False
    Whether to show a progress line on standard error.

Raises
------
InputError
    If a value, a target or a weight is invalid; the message names the column and the row. Nothing is learned.
ValueError
    If the number of targets or weights differs from the number of rows.
""",
    "predict_one": _PREDICT_ONE,
    "predict_proba_one": _PREDICT_ONE,
    "score_one": _PREDICT_ONE,
    "transform_one": _PREDICT_ONE,
    "predict_many": _PREDICT_MANY,
    "predict_proba_many": _PREDICT_MANY,
    "score_many": _PREDICT_MANY,
    "transform_many": _PREDICT_MANY,
    "explain_one": """
Each field is compared with its running mean: the mean of its numbers, or for a string the frequencies of its values.
Models with a `kernel` have no running means and compare with 0, as if the field were missing; put a ``StandardScaler``
in front of them.

Parameters
----------
x : dict
    The features by name, as for :meth:`predict_one`.
method : {"gradient", "sampling"}, default "gradient"
    ``"gradient"`` is the exact gradient of the random features at `x` times the distance from the mean, and for the
    linear function and the nearest neighbours the mean of their changes when the field is set to its value in `x`
    alone and when it is set last. It is fast; the contributions add up to the change of the prediction only where f is
    linear.
    ``"sampling"`` is Shapley values: the mean change of the prediction when the field is set to its value in `x`, over
    random orders of the fields. They add up to the difference between the predictions for `x` and for the mean, up to
    rounding.
n_orders : int, default 32
    Number of orders for ``"sampling"``; every second one is the reverse of the one before. If evaluating all sets of
    fields takes no more predictions, as for up to eight fields by default, the values are exact.

Returns
-------
dict
    The contributions by the names in `x`, in its order. A missing value contributes 0 if its field is usually present.

Raises
------
InputError
    If a value is neither a finite number nor a string; or if the method is ``"gradient"`` and the gradient of this
    kernel is not known.
ValueError
    If `method` or `n_orders` is out of its range.

References
----------
Štrumbelj and Kononenko, "Explaining prediction models and individual predictions with feature contributions", Knowledge
and Information Systems 2014.
""",
    "feature_importances_": """
It is the mean square of the derivative of f with respect to the field, times the field's variance, over the gradients
of the learned metric: at every fourth example, with more weight for recent ones. A linear function with coefficients w
of independent inputs of deviations s gives w²s²/Σw²s². A string counts with all its values.

Shares describe the model's use of a field, not causes: two redundant fields may divide their share in any proportion.
Only the first 1,024 names have a share, where each value of a string counts as a name.

Raises
------
AttributeError
    If the model has learned fewer than 256 examples, or has another kernel or learner than the default.

References
----------
Sobol' and Kucherenko, "Derivative based global sensitivity measures and their link with global sensitivity indices",
Mathematics and Computers in Simulation 2009.
""",
}

SOLVED = dict.fromkeys(
    ("fit", "fit_transform", "transform", "predict", "predict_proba", "decision_function", "score"),
    """
Parameters
----------
X : array_like of shape (n, p)
    The inputs.
y : array_like of shape (n,)
    The targets: numbers or classes.
task : array_like of shape (n,) or None, default None
    The task of each example; by default all examples have the same task.
sample_weight : array_like of shape (n,) or None, default None
    The weights of the rows.
""",
)
"""The methods of batch solvers."""


def documented(shared: str = ESTIMATOR, methods: Mapping[str, str] = METHODS) -> Callable[[Thing], Thing]:
    """Complete the docstring of a class or a function, and of the methods that a class defines, by shared ones.

    A docstring gets the shared paragraphs after its own, the shared entries of parameters that it does not describe,
    the shared texts of attributes that it only names, and the shared sections that it does not have.

    Examples
    --------
    >>> @documented()
    ... class Model:
    ...     def learn_many(self, y, verbose):
    ...         '''Learn.'''
    >>> [line for line in Model.learn_many.__doc__.splitlines() if " : " in line]
    ['y : series or array_like of shape (n_examples,)', 'verbose : bool, default False']
    """

    def decorate(thing: Thing) -> Thing:
        thing.__doc__ = _completed(thing.__doc__, shared, thing)
        for name in methods.keys() & vars(thing).keys():
            method = vars(thing)[name]
            function = inspect.unwrap(getattr(method, "fget", method))
            method.__doc__ = function.__doc__ = _completed(method.__doc__, methods[name], function)
        return thing

    return decorate


def _completed(docstring: str | None, shared: str, thing: Callable[..., object]) -> str | None:
    """Return the docstring of a class or a function with what it lacks; the option -OO of Python leaves all out."""
    if docstring is None:
        return None
    (summary, specific), (more, common) = _parts(docstring), _parts(shared)
    described, common_entries = _entries(specific.get("Parameters", "")), _entries(common.get("Parameters", ""))
    parameters = [described.get(name) or common_entries.get(name, "") for name in inspect.signature(thing).parameters]
    texts = _entries(common.get("Attributes", ""))
    attributes = [
        text if " :" in text else texts[name] for name, text in _entries(specific.get("Attributes", "")).items()
    ]
    sections = common | specific | {"Parameters": "".join(parameters), "Attributes": "".join(attributes)}
    parts = [f"{title}\n{'-' * len(title)}\n{sections[title].strip()}" for title in _SECTIONS if sections.get(title)]
    return "\n\n".join([part for part in (summary, more) if part] + parts) + "\n"


def _parts(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the summary of a docstring, and its sections by title."""
    first, *rest = re.split(r"^([A-Z]\w+)\n-{3,}\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return first.strip(), dict(zip(rest[::2], rest[1::2], strict=True))


def _entries(section: str) -> dict[str, str]:
    """Return the entries of a section by the names that they describe, a common one by the first of its names."""
    entries = [entry.strip() + "\n" for entry in re.split(r"^(?=\S)", section, flags=re.MULTILINE) if entry.strip()]
    return {re.split(r"[ ,\n]", entry)[0]: entry for entry in entries}
