"""`python -m tampu.cli`, for where the script `tampu` is not on the path."""

from tampu.cli.main import main

main()
