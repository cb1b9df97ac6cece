"""TRACE: Theoretical Risk Attribution under Covariate-shift Effects."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .diagnostic import Diagnostic, diagnose
    from .gate.policy import Policy, Rule, Verdict, decide
    from .sample import Sample, stratified_split
    from .settings import Settings

__all__ = ["Diagnostic", "Policy", "Rule", "Sample", "Settings", "Verdict", "decide", "diagnose", "stratified_split"]

_MODULES = {
    "diagnostic": ("Diagnostic", "diagnose"),
    "gate.policy": ("Policy", "Rule", "Verdict", "decide"),
    "sample": ("Sample", "stratified_split"),
    "settings": ("Settings",),
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: files and errors need no torch, which takes seconds."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(f".{module}", __name__), name)
    return value
