"""`python -m lmkit`, the same as `lmkit`."""

from lmkit.cli.main import main

if __name__ == "__main__":
    main()
