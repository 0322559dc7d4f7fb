"""Chat templates by model: SmolLM2's as it ships, and short ones with the constructs of others' templates.

What a family's template does that others do not is kept: loops that go back, names that are changed inside of loops,
macros, dates, refusals, trimming, tests and filters.
"""

# ruff: noqa: E501 - lines are as models ship them

from __future__ import annotations

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou "
    "are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + "
    "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """\
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
QWEN3 = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and \
not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
MISTRAL = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate user and assistant") }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- elif message == user_messages[-1] %}
            {{- "[INST] last: " + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""
GEMMA3 = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""
GPT_OSS = """\
{%- macro render_content(text, indent_level=0) -%}
    {%- for line in text.split('\\n') %}{{ '  ' ~ line if indent_level else line }}{{ '' if loop.last else '\\n' }}{% endfor %}
{%- endmacro -%}
{%- macro build_system_message() -%}
    {{- "Knowledge cutoff: 2024-06\\n" }}
    {{- "Current date: " + strftime_now("%Y-%m-%d") + "\\n\\n" }}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Reasoning: " + reasoning_effort + "\\n\\n" }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- build_system_message() }}{{- "<|end|>" }}
{%- for message in messages -%}
    {%- if loop.first and message.role in ["developer", "system"] -%}
        {{- "<|start|>developer<|message|># Instructions\\n\\n" ~ render_content(message.content, indent_level=1) ~ "<|end|>" }}
    {%- elif message.role == 'assistant' -%}
        {{- "<|start|>assistant<|channel|>final<|message|>" ~ message.content ~ ("<|return|>" if loop.last else "<|end|>") }}
    {%- else -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""
DEEPSEEK = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\
{% set ns = namespace(is_first=false, system_prompt='', is_first_sp=true) %}\
{%- for message in messages %}{%- if message['role'] == 'system' %}\
{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}\
{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}\
{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}\
{%- for message in messages %}{%- if message['role'] == 'user' %}{{'<|User|>' + message['content']}}\
{%- elif message['role'] == 'assistant' and message['content'] is not none %}\
{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}\
{% endif %}{{'<|Assistant|>' + content + '<|end_of_sentence|>'}}{%- endif %}{%- endfor -%}\
{% if add_generation_prompt %}{{'<|Assistant|><think>\\n'}}{% endif %}
"""
PHI = """\
{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}\
{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}\
{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}
"""
FILTERS = """\
{%- for role, group in messages | groupby('role') %}{{ role | upper }}={{ group | map(attribute='content') | join('|') }};
{% endfor -%}
{{ messages | tojson(indent=2, ensure_ascii=True) }}{{ messages | tojson(separators=(',', ':'), sort_keys=True) }}
{%- for message in messages if message.role != 'system' %}
{% if loop.index > 2 %}{% break %}{% elif loop.changed(message.role) %}{% continue %}{% endif %}
{{ loop.revindex }}:{{ message.content | replace('\\n', ' ') | default('-', true) | capitalize }}
    {%- generation %}{{ message['content'][:3] }}{% endgeneration %}
{%- else %}nobody{% endfor %}
{{ (messages | length) // 2 }} {{ 7 % 4 }} {{ 2 * 3 }} {{ [1, 2] + [3] }} {{ 'a' ~ 1 ~ none ~ 2.5 }}
{% set x, y = 'p', 'q' %}{{ x }}{{ y }}{% set block %}kept {{ x }}{% endset %}{{ block | trim }}
{% filter upper %}loud{% endfilter %}
"""
TEMPLATES = {
    "chatml": SMOLLM2, "deepseek": DEEPSEEK, "gemma3": GEMMA3, "gpt-oss": GPT_OSS, "llama3": LLAMA3,
    "mistral": MISTRAL, "phi": PHI, "qwen3": QWEN3, "filters": FILTERS,
}  # fmt: skip
