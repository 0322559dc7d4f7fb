"""The chat template of a model that brings none: one that was trained on text and never taught a chat format.

Without any, a conversation would become an empty prompt. Questions and answers in turn are a form that such models
have read often enough to go on with.
"""

from __future__ import annotations

PLAIN_TEMPLATE = """\
{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}
Question: {{ message['content'] | trim }}
{% elif message['role'] == 'assistant' %}
Answer: {{ message['content'] | trim }}
{% else %}
{{ message['content'] | trim }}
{% endif %}{% endfor %}{% if add_generation_prompt %}
Answer:{% endif %}
"""
