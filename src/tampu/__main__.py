"""`python -m tampu`, for where the script `tampu` is not on the path."""

from tampu.cli.main import main

if __name__ == "__main__":
    main()
