"""The demo: questions, tokenizers and two tiny language models, all generated or trained by this
package."""
