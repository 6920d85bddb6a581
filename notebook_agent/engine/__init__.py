"""The async driver: the loop, the LLM turn, the ladder, tools, stores."""
