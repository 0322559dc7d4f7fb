"""What the market's contracts cost: receipts of real calls on a local chain.

``stage`` deploys and registers, ``orders`` makes what parties sign over one order; ``tabs``, ``cases``, ``convictions``
and ``groups`` measure; ``table`` puts the figures beside what was set out to be reached.
"""
