"""Turns a dashboard into the JSON that Grafana loads, with Grafana's own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from monitoring_lib.panels import FULL, Dashboard, Panel
from punctual import metric_names as names

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHTS = {"number": 4, "lines": 8, "bars": 8, "heat": 8}


def text(board: Dashboard) -> str:
    """Return a dashboard as JSON."""
    return JSONEncoder(sort_keys=True, indent=1).encode(_board(board).build()) + "\n"


def _board(board: Dashboard) -> dashboard.Dashboard:
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.name)
        .tags(["punctual"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    if board.pools:
        made.with_variable(
            dashboard.QueryVariable("pool")
            .label("Pool")
            .datasource(SOURCE)
            .query(f"label_values({names.PROCESSORS.name}, pool)")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(models.VariableOption(selected=True, text="All", value="$__all"))
        )
    top = 0
    for title, panels in board.rows:
        made.with_row(dashboard.Row(title).grid_pos(models.GridPos(h=1, w=FULL, x=0, y=top)))
        top += 1
        for panel, place in _places(panels, top):
            made.with_panel(_panel(panel).grid_pos(place))
            top = max(top, place.y + place.h)
    return made


def _places(panels: tuple[Panel, ...], top: int) -> Iterator[tuple[Panel, models.GridPos]]:
    """Yield the panels with their places, from left to right and line by line."""
    left = height = 0
    for panel in panels:
        if left + panel.width > FULL:
            left, top = 0, top + height
        height = HEIGHTS[panel.kind]
        yield panel, models.GridPos(h=height, w=panel.width, x=left, y=top)
        left += panel.width


def _panel(panel: Panel) -> Any:
    match panel.kind:
        case "number":
            made: Any = stat.Panel().color_mode(common_models.BigValueColorMode.VALUE)
        case "heat":
            made = heatmap.Panel().calculate(False)
        case kind:
            bars = kind == "bars"
            made = (
                timeseries.Panel()
                .draw_style(common_models.GraphDrawStyle.BARS if bars else common_models.GraphDrawStyle.LINE)
                .fill_opacity(60 if bars else 10)
                .legend(common.VizLegendOptions().show_legend(True).placement(common_models.LegendPlacement.BOTTOM))
            )
            if bars:
                made.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    made.title(panel.title).description(panel.help).unit(panel.unit).datasource(SOURCE)
    for query in panel.queries:
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend)
        if panel.kind == "heat":
            target.format(PromQueryFormat.HEATMAP)
        if panel.kind == "number":
            target.instant()
        made.with_target(target)
    return made
