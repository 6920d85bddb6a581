"""The pure core: no I/O, no clock, no randomness, no asyncio.

Read it in this order: messages, response, events, event_routes, accumulator, request,
context, compaction, policy, outcomes, turn_fsm, breaker, retry, agent_events, session,
run_state, result, text. A file imports only files above it (``text`` is a leaf).
"""
