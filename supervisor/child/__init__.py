"""The code that runs inside a forked child: plain synchronous Python. Never imports parent."""
