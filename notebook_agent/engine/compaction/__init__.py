"""The parts of a compaction pass: strategies, the model's summary, the preview.

The way in is :class:`notebook_agent.engine.compactor.CompactionService`.

Source: Turn FSM, "BuildingContext" (B28-B35).
"""
