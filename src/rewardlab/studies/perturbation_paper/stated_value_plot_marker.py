"""The hollow diamond that marks a number stated in the perturbation paper, in simulated and in measured figures."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rewardlab.analysis.figure_style import GREY

_DIAMOND = 6.5  # points


def draw_stated(axes: Axes, places: Sequence[float], values: Sequence[float], colour: str) -> None:
    """Draw one diamond per stated number, around what is measured there."""
    axes.plot(places, values, "D", color=colour, markersize=_DIAMOND, markerfacecolor="none", label="stated")


def stated_key() -> Line2D:
    """Return the diamond's entry of the legend."""
    return Line2D([], [], color=GREY, marker="D", markerfacecolor="none", linestyle="", label="stated in the paper")
