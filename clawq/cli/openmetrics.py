"""The text of `clawq metrics`: the only user of prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import CollectorRegistry

from clawq.cli.series import COUNTER, GAUGE, Buckets, Point, Series
from clawq.store.counts import BOUNDS_MS

Told = Iterable[tuple[Series, list[Point]]]

_BOUNDS = [*(f"{most / 1000}" for most in BOUNDS_MS), "+Inf"]


class _Once:
    """What prometheus_client takes for a collector."""

    def __init__(self, told: Told) -> None:
        self._families = [_family(series, points) for series, points in told if points]

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def openmetrics(told: Told) -> str:
    """OpenMetrics 1.0, as a scrape asks for it. Series without a value are left out."""
    written: bytes = generate_openmetrics(cast(CollectorRegistry, _Once(told)))  # type: ignore[no-untyped-call]
    return written.decode()


def text(told: Told) -> str:
    """The older text format (0.0.4), the one that node_exporter reads from files."""
    return generate_text(cast(CollectorRegistry, _Once(told))).decode()


def _family(series: Series, points: list[Point]) -> Metric:
    family: Any
    name, labels = series.name, series.labels
    if series.type == GAUGE:
        family = GaugeMetricFamily(name, series.help, labels=labels, unit=series.unit)
    elif series.type == COUNTER:
        family = CounterMetricFamily(name, series.help, labels=labels, unit=series.unit)
    else:
        family = HistogramMetricFamily(name, series.help, labels=labels, unit=series.unit)
    for values, value in points:
        if isinstance(value, Buckets):
            sums = accumulate(value.counts)
            family.add_metric(values, list(zip(_BOUNDS, sums, strict=True)), value.sum)
        else:
            family.add_metric(values, value)
    return cast(Metric, family)
