"""Responses that other programs made: their logs and servers. No torch."""
