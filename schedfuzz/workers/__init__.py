"""Running: target environments, target processes and what lives inside them."""
