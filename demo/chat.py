"""Prompts and chat templates of the demo models.

The solving prompt is that of `fig:prompt_example`, with or without its system text and
demonstration. The verification query is that of `fig:prompt_comparison`.
"""

from lib.tasks.prompts import question_messages, verification_messages

FULL = question_messages("{question}", system=False)[0]["content"]
SHORT = question_messages("{question}", system=False, demonstration="none")[0]["content"]
PROPOSED = verification_messages("{question}", "{response}", system=False)[0]["content"]

# Chat templates like those of Llama 3 (with a beginning-of-sequence token and headers) and Qwen 3
# (without; with a thinking block, which `enable_thinking=False` leaves empty).
LLAMA_TEMPLATE = (
    "{{- bos_token }}{% for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
    "+ message['content'] + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
QWEN_TEMPLATE = (
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{% endif %}"
)
