"""The verbs of ``%agent``: one table, and the methods of AgentSession they call."""
