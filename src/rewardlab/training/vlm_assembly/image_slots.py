"""Chat templates of language models, which know messages of one string, taught to take images and text in pieces."""

from rewardlab.training.vlm_assembly.language_model import IMAGE_TOKEN

# Pieces become one string per message, an image the token that stands for it; then the model's own template goes on.
_FLATTEN = (
    "{%- set flat = namespace(messages=[]) -%}{%- for message in messages -%}"
    "{%- set said = namespace(text='') -%}"
    "{%- if message['content'] is string -%}{%- set said.text = message['content'] -%}{%- else -%}"
    "{%- for piece in message['content'] -%}"
    "{%- set said.text = said.text + ('IMAGE' if piece['type'] == 'image' else piece['text']) -%}"
    "{%- endfor -%}{%- endif -%}"
    "{%- set flat.messages = flat.messages + [{'role': message['role'], 'content': said.text}] -%}"
    "{%- endfor -%}{%- set messages = flat.messages -%}"
).replace("IMAGE", IMAGE_TOKEN)
_PLAIN = (  # for models that have none
    "{% for message in messages %}{{ message['role'].capitalize() + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def with_image_slots(template: str | None) -> str:
    """Return a chat template that takes messages with images, and writes the text as this one does."""
    return _FLATTEN + (template or _PLAIN)
