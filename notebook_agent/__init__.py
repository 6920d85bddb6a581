"""notebook_agent: agent cells for Jupyter, driven by a turn engine you can see and replay."""

from __future__ import annotations

__version__ = "0.1.0"
