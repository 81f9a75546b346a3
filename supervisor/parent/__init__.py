"""The supervising process: one asyncio loop, one thread, nothing that blocks. Never imports the child's loop."""
