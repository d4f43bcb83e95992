"""A model that only a server has: its address, what it is sent, and its answers."""
