"""Thinking: generate, mutate, judge, guide, minimize, export. Only `hunt` also uses workers."""
