"""Writes the dashboards as JSON for Grafana: ``python -m dashboards.generate``, with the extra `dashboards`."""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.common import GraphThresholdsStyleConfig, VizLegendOptions
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as StatPanel
from grafana_foundation_sdk.builders.timeseries import Panel as TimePanel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import GraphTresholdsStyleMode, LegendDisplayMode, LegendPlacement

from dashboards.panels import DASHBOARDS, Panel

FOLDER = Path(__file__).parent / "grafana"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT, COLUMNS = 8, 8, 24


def panel(what: Panel, place: int) -> StatPanel | TimePanel:
    """Return a panel at its place in the grid, row by row."""
    made = StatPanel() if what.kind == "stat" else TimePanel()
    per_row = COLUMNS // WIDTH
    made.title(what.title).description(what.description).unit(what.unit).datasource(SOURCE)
    made.id(place + 1).grid_pos(
        models.GridPos(h=HEIGHT, w=WIDTH, x=place % per_row * WIDTH, y=place // per_row * HEIGHT)
    )
    for i, (expression, legend) in enumerate(what.expressions):
        query = Dataquery().expr(expression).legend_format(legend).datasource(SOURCE).ref_id("ABCDEF"[i])
        made.with_target(query)
    made.thresholds(builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps_of(what)))
    if isinstance(made, TimePanel):
        made.legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull"])
        )
        if what.above is not None or what.below is not None:
            made.thresholds_style(GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.LINE))
    return made


def steps_of(what: Panel) -> list[models.Threshold]:
    """Return the colours of a panel by value."""
    if what.below is not None:
        return [models.Threshold(value=None, color="red"), models.Threshold(value=what.below, color="green")]
    steps = [models.Threshold(value=None, color="green")]
    return steps if what.above is None else [*steps, models.Threshold(value=what.above, color="red")]


def label_variable(name: str, query: str) -> builders.QueryVariable:
    """Return a variable with the values of a label, all of them at first."""
    return (
        builders.QueryVariable(name)
        .label(name)
        .query(query)
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        .all_value(".+")
        .multi(True)
        .current(models.VariableOption(text="All", value="$__all"))
    )


def text_of(name: str) -> str:
    """Return a dashboard as JSON."""
    title, description, panels = DASHBOARDS[name]
    made = (
        builders.Dashboard(title)
        .uid(f"streamkernel-{name}")
        .description(description)
        .tags(["streamkernel"])
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .with_variable(builders.DatasourceVariable("datasource").label("data source").type("prometheus"))
        .with_variable(label_variable("job", "label_values(streamkernel_build_info, job)"))
        .with_variable(label_variable("instance", 'label_values(streamkernel_build_info{job=~"$job"}, instance)'))
    )
    for i, what in enumerate(panels):
        made.with_panel(panel(what, i))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def main() -> None:
    """Write all dashboards."""
    FOLDER.mkdir(exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text_of(name))


if __name__ == "__main__":
    main()
