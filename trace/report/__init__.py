"""A Diagnostic or a Verdict for people: plain text, Markdown, and one HTML page."""

from .text import to_markdown, to_text

__all__ = ["to_markdown", "to_text"]
