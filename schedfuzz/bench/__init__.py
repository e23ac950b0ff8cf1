"""Measuring: how many known bugs and how many mutants the hunt finds."""
