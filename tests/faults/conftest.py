"""Executors that end with their test."""

from executors import executor, single

__all__ = ["executor", "single"]
