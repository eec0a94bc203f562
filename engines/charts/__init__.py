"""Charts: what an engine's readings look like as Plotly figures (plain dictionaries).

``registry.CHARTS`` lists them by the name in their address. Colours are not here: a trace's ``meta.tone``
and a shape's ``name`` say what it is, and static/js/charts.js takes the colour from the page's CSS.
"""
