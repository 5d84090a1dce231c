"""Pilot chunks: measure a job that declares no cost; two sizes separate chi from theta.

seconds = theta_cp + chi * units, from the decision to create a pod to its end, so theta_cp contains the start-up that
planning needs. The fit is least squares over all pilots (with two sizes: the line through them). If inputs are fetched
for pilots, their transfers are measured separately and subtracted first: they give tau and theta_cm. If programs fetch
their inputs themselves, chi and theta_cp contain that time.
"""

from collections.abc import Sequence

from punctual.scheduling.model.job import PilotSample, Transfers
from punctual.theory.cost import Cost

PILOT_SECONDS = 10.0
"""Maximum target duration of a pilot, seconds."""
MOST_PILOTS = 4
UNIT_PILOTS = 2
"""Pilots of a job of which each pod does one unit: all are of one size. The first may have pulled the image."""
CLEAR = 2.0
"""The larger pilot must take so many seconds longer than the smaller, or start-up noise hides chi."""
LEAST_CHI = 1e-6


def next_pilot(samples: Sequence[PilotSample], units_left: int, *, unit_pods: bool = False) -> int | None:
    """Return the size of the next pilot; None if the samples are sufficient (or no units are left).

    ``unit_pods``: each pod does one unit.
    """
    if units_left <= 0 or len(samples) >= (UNIT_PILOTS if unit_pods else MOST_PILOTS):
        return None
    if unit_pods or not samples:
        return 1
    small = min(samples)
    large = max(samples)
    if large.units == small.units:
        # chi is at most the whole time of the small pilot: this many units take at most PILOT_SECONDS more.
        wanted = max(2 * large.units, int(PILOT_SECONDS / max(small.seconds / small.units, LEAST_CHI)))
    elif large.seconds - small.seconds < CLEAR:
        wanted = 8 * large.units
    else:
        return None
    return min(wanted, max(1, units_left // 4), units_left)


def fit(samples: Sequence[PilotSample], sent: Transfers | None = None) -> Cost:
    """Return chi and theta_cp by least squares; with one size alone all time counts as chi (the safe side).

    ``sent``: the totals of the transfers of their inputs.
    """
    tau, theta_cm = (sent.tau, sent.theta_cm) if sent else (0.0, 0.0)
    n = len(samples)
    mean_u = sum(s.units for s in samples) / n
    mean_t = sum(s.seconds for s in samples) / n
    work = mean_t - theta_cm - tau * mean_u
    spread = sum((s.units - mean_u) ** 2 for s in samples)
    if spread == 0:
        return Cost(chi=max(LEAST_CHI, work / mean_u), tau=tau, theta_cm=theta_cm)
    slope = sum((s.units - mean_u) * (s.seconds - mean_t) for s in samples) / spread - tau
    chi = max(LEAST_CHI, slope)
    return Cost(chi=chi, tau=tau, theta_cm=theta_cm, theta_cp=max(0.0, work - chi * mean_u))
