"""The root `troth` command: it finds the sub-commands that the packages contribute and renders their errors."""
