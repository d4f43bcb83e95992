"""The wording of every conversation that the demo models are taught: the paper's prompts.

The solving prompt is the paper's figure `fig:prompt_example`, with or without its system text and demonstration; the
verification question is that of `fig:prompt_comparison`.
"""

SYSTEM = (
    "You are a helpful, respectful, and honest assistant. Always answer as helpfully as possible, while being safe. "
    "Your answers should not include any harmful, unethical, racist, sexist, toxic, dangerous, or illegal content. "
    "Please ensure that your responses are socially unbiased and positive in nature."
)
FULL = (
    "You are a mathematics expert. First, study this example:\n"
    "Question: Sarah has 10 marbles, gives 3 away.\n"
    "Answer: Sarah would have 10 - 3 = <<10-3=7>>7 marbles remaining.\n"
    "#### 7\n\n"
    "Next, solve:\n{question}\n\n"
    "At the end, write the answer as an integer after '#### '."
)
SHORT = "You are a mathematics expert. Solve:\n{question}\n\nAt the end, write the answer as an integer after '#### '."
QUERY = (
    "\n\nIs the proposed answer:\nA: True\nB: False\n"
    "You must answer with exactly one character: either `A` or `B`.\n\nThe proposed answer is:"
)
PROPOSED = "Question:\n{question}\n\nProposed answer:\n\n{response}" + QUERY

# Chat templates in the manner of Llama 3 (a beginning-of-sequence token, headers) and of Qwen 3 (no such token, a
# thinking block that `enable_thinking=False` closes empty before the model writes).
LLAMA_TEMPLATE = (
    "{{- bos_token }}{% for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
QWEN_TEMPLATE = (
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{% endif %}"
)
