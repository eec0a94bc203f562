from __future__ import annotations

import re
from xml.etree import ElementTree

from django.template import Context, Template

from engines.templatetags.charts import sparkline


def paths(svg: str, kind: str) -> list[str]:
    return re.findall(rf'<path class="{kind}" d="([^"]+)"', svg)


def test_a_gap_breaks_the_line():
    svg = sparkline([0.1, 0.2, None, None, 0.5, 0.6])
    assert len(paths(svg, "line")) == 2
    assert len(paths(svg, "area")) == 2


def test_it_says_its_extent_to_those_who_do_not_see_it():
    svg = sparkline([0.1, None, 0.76], "Usage")
    assert 'aria-label="Usage: 10% to 76%, now 76%"' in svg
    assert "no data" in sparkline([None, None])
    assert paths(sparkline([]), "line") == []
    assert "band" not in sparkline([None, None])
    assert "band" in sparkline([None, 0.5])


def test_full_is_at_the_top_and_empty_at_the_bottom():
    (line,) = paths(sparkline([0.0, 1.0]), "line")
    assert line == "M0.0,42.0 L256.0,2.0"


def test_it_is_well_formed_without_inline_style_and_escapes_its_label():
    template = Template("{% load charts %}{% sparkline values label %}")
    svg = template.render(Context({"values": [0.5, None, 0.9], "label": "<b>&"}))
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label", "").startswith("<b>&: ")
    assert "style=" not in svg
