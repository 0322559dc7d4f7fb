"""Cases of the court: the evidence that is handed on, what can be done with it, and what carries a case to its end.

``evidence`` is one file that lets its holder act alone. ``assessing`` says what can be done with it and what it costs,
``opening`` does it. ``carrying`` drives a case through the contracts, for anyone; ``reviewing`` is the side of a node
that was drawn to judge, ``defending`` that of the node that is judged.
"""
