"""Executors that end with their test."""

from executors import executor, patient, single

__all__ = ["executor", "patient", "single"]
