"""The project's own figures: ``python -m bench [--quick] [--write] [NAME...]``."""
