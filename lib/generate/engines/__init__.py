"""Engines that draw responses beside transformers."""
