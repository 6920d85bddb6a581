"""The notebook surface: magics, panel, output."""
