"""A whole Troth network on one machine: a chain, a scheduler, ten nodes, a client, an auditor.

`network` builds and runs it, `acts` plays the main job on it, `command` is `troth demo`.
"""
