"""A deterministic simulator of the production runtime. Start at `simulate.py`; `history.py` plays one history."""
