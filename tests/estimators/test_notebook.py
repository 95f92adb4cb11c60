"""The view in a notebook shows the learner, the learned state and all parameters, and has no executable content."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from test_layout_of_files import MODELS, XS

from streamkernel import KernelClassifier, KernelDriftDetector, KernelRegressor, learners
from streamkernel.kernels import Gaussian


class Table(HTMLParser):
    """Collects the rows of tables, and all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data

    @property
    def rows(self) -> dict[str, str]:
        return dict(zip(self.cells[::2], self.cells[1::2], strict=True))


@pytest.mark.parametrize(("model", "ys"), MODELS.values(), ids=MODELS)
def test_every_model_shows_its_parameters(model: Any, ys: Any) -> None:
    for learned in (False, True):
        if learned:
            learn = model.update if isinstance(model, KernelDriftDetector) else model.learn_one
            for i, x in enumerate(XS[:30]):
                learn(x) if ys is None else learn(x, ys[i])
        table = Table(model._repr_html_())
        assert not table.open
        assert {"script", "style", "img", "link"}.isdisjoint(table.tags)
        assert len(model._repr_html_()) < 8000
        parameters = dict(
            zip(
                table.cells[-2 * len(model._get_params()) :: 2],
                table.cells[-2 * len(model._get_params()) + 1 :: 2],
                strict=True,
            )
        )
        assert parameters == {name: repr(value) for name, value in model._get_params().items()}


def test_it_shows_the_learner_and_the_learned_state() -> None:
    model = KernelRegressor(max_features=512, seed=3)
    young = Table(model._repr_html_()).rows
    assert "regularised loss, recent" not in young
    assert young["kernel"] == "None"  # the table shows this parameter last
    for i in range(1234):
        model.learn_one({"x": i % 10}, float(i % 10))
    html = model._repr_html_()
    facts = Table(html.partition("<details>")[0] + "</div>").rows
    assert facts["learner"] == repr(model.learner_)
    assert facts["kernel"] == repr(model.kernel_)
    assert facts["events learned"] == "1,234"
    assert facts["random features"] == str(model.n_features)
    assert facts["seed"] == "3"
    assert facts["regularised loss, recent"] == f"{model.objective:.4g}"
    assert "<b>512</b>" in html  # not the default value
    assert "<b>None</b>" not in html
    assert "provisional" in Table(KernelRegressor()._repr_html_().partition("<details>")[0] + "</div>").rows["kernel"]
    fixed = KernelClassifier(Gaussian(1.0), learner=learners.DSG())._repr_html_()
    assert "provisional" not in fixed


def test_labels_are_escaped_and_limited() -> None:
    model = KernelClassifier(learner="dsg", class_weight={"<script>alert(1)</script>": 2.0})
    for i in range(30):
        model.learn_one({"x": float(i)}, f"<b onclick='x'>{i}</b>" if i else "<script>alert(1)</script>")
    html = model._repr_html_()
    assert "<script" not in html
    assert "onclick='" not in html
    assert "and 10 more" in Table(html.partition("<details>")[0] + "</div>").rows["labels"]
