"""A member of the directory's committee: the process behind `troth committee start`.

It checks entries, agrees with the others on lists and serves them (``directory``, docs/reference/directory.md). Where
its file has a [reputation] table it also rates nodes: it asks them as a client does and agrees on what the answers were
worth (``rating`` and ``corpus``, docs/reference/reputation.md). Where it has a [tickets] table it signs tickets
(``tickets``). ``service`` is what it answers over HTTPS, ``requests`` how members speak to one another.
"""
