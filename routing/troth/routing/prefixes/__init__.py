"""Who in a group of nodes holds which prompt prefix: PlanetServe's Hash-Radix tree (section 3.3, appendix A3).

Pure tables over frozen types; time is an argument, messages are values. docs/explanation/forwarding.md says
what is promised.
"""
