"""May this update go out? A score with its interval against a limit, for one anchor or several."""

from ..stats.conformal import PastUpdate
from .policy import Policy, decide
from .verdict import AnchorVerdict, Verdict

__all__ = ["AnchorVerdict", "PastUpdate", "Policy", "Verdict", "decide"]
