"""The async edge: one file a wire format, all speaking core events."""
