"""The language: scenarios, traces, their validation and their canonical form.

Nothing here imports another room, so it loads inside any target environment.
"""
