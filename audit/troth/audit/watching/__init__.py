"""The watcher: it looks again and again, tells what is new, and acts on evidence where it was told to."""
