"""Linear cost model of divisible load theory: the cost of a load on one processor (Mamat 2011, ch. 4).

To send a units takes θcm + aτ, to compute them θcp + aχ. All results in :mod:`punctual.theory` follow from these four
numbers. They are estimates: :meth:`Cost.with_headroom` leaves a reserve for errors in a plan.
"""

from dataclasses import dataclass, fields, replace
from math import isfinite


@dataclass(frozen=True, slots=True)
class Cost:
    """Four numbers of one job; ``ValueError`` names the field that is negative, infinite or (``chi``) zero.

    chi       χ, Cps   s/unit   to process one unit on one processor
    tau       τ, Cms   s/unit   to send one unit from the head node to one processor
    theta_cm  θcm      s        to set up one transfer (connection, latency)
    theta_cp  θcp      s        to set up one computation (container, process)
    """

    chi: float
    tau: float = 0.0
    theta_cm: float = 0.0
    theta_cp: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isfinite(value) or value < 0.0:
                raise ValueError(f"{field.name} must be finite and not negative, not {value}")
        if self.chi == 0.0:
            raise ValueError("chi must be more than 0")

    @property
    def setup(self) -> float:
        """θcm + θcp: seconds a chunk costs before its first unit."""
        return self.theta_cm + self.theta_cp

    @property
    def per_unit(self) -> float:
        """τ + χ: seconds that each unit takes on its processor."""
        return self.tau + self.chi

    @property
    def beta(self) -> float:
        """β = χ/(τ + χ) (4.5), in (0, 1]; 1 without transfers."""
        return self.chi / (self.tau + self.chi)

    def with_headroom(self, r: float) -> "Cost":
        """Return the cost to plan with, χ/(1 − r), so that a loop may still speed up by 1/(1 − r); 0 <= r < 1."""
        if not 0.0 <= r < 1.0:
            raise ValueError(f"headroom must be in [0, 1), not {r}")
        return replace(self, chi=self.chi / (1.0 - r))

    def in_unit_pods(self) -> "Cost":
        """Return the cost of units of which each has a pod, and so a set-up and a transfer, of its own.

        A processor takes n · (θcm + τ + θcp + χ) for n of them, so all four are a unit's: χ.
        """
        return Cost(chi=self.setup + self.per_unit)

    def seconds(self, units: float) -> float:
        """Return the seconds that one processor alone takes for a chunk of ``units``, its set-up included."""
        return self.setup + units * self.per_unit
