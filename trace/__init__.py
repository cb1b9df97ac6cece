"""TRACE: Theoretical Risk Attribution under Covariate-shift Effects."""

from .diagnostic import Diagnostic, diagnose
from .sample import Sample, stratified_split
from .settings import Settings

__all__ = ["Diagnostic", "Sample", "Settings", "diagnose", "stratified_split"]
