"""The `mona` command: `main` has the table of commands, each other file one of them."""
