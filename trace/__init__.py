"""TRACE: Theoretical Risk Attribution under Covariate-shift Effects."""

from .diagnostic import Diagnostic, diagnose
from .gate.policy import Policy, decide
from .gate.verdict import Verdict
from .sample import Sample, stratified_split
from .settings import Settings

__all__ = ["Diagnostic", "Policy", "Sample", "Settings", "Verdict", "decide", "diagnose", "stratified_split"]
