"""The embedded default: questions, tokenizers and two tiny language models that this repository trains itself."""
