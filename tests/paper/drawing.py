"""What is drawn in a panel: curves, bands, bars, lines and points, by their labels and places."""

import numpy as np
from matplotlib.collections import FillBetweenPolyCollection, LineCollection, PathCollection


def titles(canvas):
    return [ax.get_title("left") for ax in canvas.axes]


def labels(ax):
    """The curves of a panel."""
    return [line.get_label() for line in ax.lines if not line.get_label().startswith("_")]


def curve(ax, label):
    """The places (n, 2) of a curve."""
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line.get_xydata()


def guides(ax):
    """The places of each line without a label."""
    return [line.get_xydata() for line in ax.lines if line.get_label().startswith("_")]


def bands(ax):
    """The lower and the upper end of each band (n, 3), at each x."""
    edges = []
    for band in ax.collections:
        if isinstance(band, FillBetweenPolyCollection):
            (path,) = band.get_paths()
            x, y = path.vertices.T
            ends = []
            for place in np.unique(x):
                heights = y[x == place]
                ends.append((place, heights.min(), heights.max()))
            edges.append(np.array(ends))
    return edges


def segments(ax):
    """The ends of straight lines: (x, y, x, y) of each, one array for each call that drew them."""
    groups = []
    for lines in ax.collections:
        if isinstance(lines, LineCollection):
            groups.append(np.array([path.vertices.ravel() for path in lines.get_paths()]))
    return groups


def bars(ax):
    """The left, lower, right and upper end of each bar."""
    return np.array([bar.get_bbox().extents for bar in ax.patches])


def points(ax):
    """The groups of points of a panel, but those that only make a line of the legend."""
    groups = [group for group in ax.collections if isinstance(group, PathCollection)]
    return [group for group in groups if len(group.get_offsets())]


def places(group):
    """The places (n, 2) of the points that are not missing."""
    return np.ma.compress_rows(group.get_offsets())


def is_hollow(group):
    """Whether each point has a white face, or none."""
    faces = group.get_facecolor()
    if not len(faces):
        return [True] * len(group.get_offsets())
    hollow = faces[:, :3].min(axis=1) == 1
    return np.broadcast_to(hollow, len(group.get_offsets())).tolist()


def legend_of_points(ax):
    """The labels of points in the legend."""
    groups = [group for group in ax.collections if isinstance(group, PathCollection)]
    return [group.get_label() for group in groups if not group.get_label().startswith("_")]


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def assert_places(actual, expected):
    np.testing.assert_allclose(np.asarray(actual, float), np.array(expected, float), atol=5e-4)
