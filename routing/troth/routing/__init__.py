"""Who hosts which layers, and who serves a request: pure functions, without sockets and without torch."""
