"""Nouns: `python -m schedfuzz`, the same as `schedfuzz`."""

from schedfuzz.cli.main import main

if __name__ == "__main__":
    main()
