"""Showing and deciding: the command line."""
