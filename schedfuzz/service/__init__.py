"""Running campaigns: who does what, where and when, and what is stored of it."""
