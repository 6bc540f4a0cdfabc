"""The axes of a sweep."""

from lmkit.runs.sweep_axes import labels, varied_options


def test_axes_are_what_not_all_points_have_alike():
    lines = [
        ["seed=1", "head/transform=gss", "+head.transform.c=-1.0"],
        ["seed=1", "head/transform=plif"],
        ["seed=1", "head/transform=gss", "head.transform.c=5e-1"],
    ]
    assert varied_options(lines) == ["head/transform", "head.transform.c"]
    assert varied_options(lines[:1]) == []


def test_labels_are_what_differs():
    assert labels([("x=1", "y=1"), ("x=1", "y=2")]) == ["y=1", "y=2"]
    assert labels([("x=1", "y=1")]) == ["x=1 y=1"]
    assert labels([()]) == ["no overrides"]
