"""May this update go out? Rules: a score's interval against a limit; and which rows to label where none decides."""

from ..stats.conformal import PastUpdate
from .labelling import Labelling, LabellingState
from .policy import AnchorVerdict, Policy, Rule, Verdict, decide

__all__ = ["AnchorVerdict", "Labelling", "LabellingState", "PastUpdate", "Policy", "Rule", "Verdict", "decide"]
