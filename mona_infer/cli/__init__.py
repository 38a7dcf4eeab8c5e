"""The `mona` command: `main` has the table of commands; most other files are one command each."""
