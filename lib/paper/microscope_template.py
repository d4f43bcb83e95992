"""What the token microscope is drawn with: style and markup, as Jinja2 reads them. A module, so that a change of it is
one of code. Everything that is filled in is escaped; nothing is loaded, and nothing runs.

Shades are of one hue and fall in lightness: they hold in greyscale and for colour-blind readers. Where a page has a
dark form, it says so with the class `themed`; a notebook's colours are not the system's, so there the card is light.
"""

PAGE_STYLE = """
.microscope { --card: #fff; --text: #1d2126; --faint: #59626d; --edge: #d9dee4; --s1: #e3ecf6; --s2: #b9cee6;
  --s3: #79a2d0; --s4: #1c4a80; --on3: #10151a; --on4: #fff; color: var(--text); background: var(--card);
  font: 14px/1.5 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .microscope.themed { --card: #14171a; --text: #e4e7ea; --faint: #a3acb6;
  --edge: #363d45; --s1: #20303f; --s2: #335474; --s3: #74a5d8; --s4: #dcecfc; --on4: #10151a; } }
.microscope details, .microscope .card { background: var(--card); border: 1px solid var(--edge); border-radius: 6px;
  padding: .5rem .75rem; margin: .4rem 0; position: relative; }
.microscope summary { cursor: pointer; color: inherit; font-size: inherit; }
.microscope p { margin: .25rem 0; max-width: none; }
.microscope .faint { color: var(--faint); font-size: .85em; }
.microscope .both { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; }
.microscope .tokens { flex: 1 1 18rem; min-width: 0; position: relative; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.75 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.microscope svg { flex: 0 0 15rem; width: 15rem; height: 7rem; overflow: visible; }
.microscope svg text { font-size: 9px; fill: var(--faint); }
.microscope .t { border-radius: 2px; }
.microscope .s1 { background: var(--s1); } .microscope .s2 { background: var(--s2); }
.microscope .s3 { background: var(--s3); color: var(--on3); }
.microscope .s4 { background: var(--s4); color: var(--on4); }
.microscope .a { box-shadow: 0 0 0 2px var(--text); border-radius: 1px; margin: 0 2px; }
.microscope .t i { display: none; }
.microscope .t:hover i, .microscope .t:focus i { display: block; position: absolute; left: 0; width: fit-content;
  max-width: 100%; z-index: 3; background: var(--text); color: var(--card); padding: .2rem .5rem; border-radius: 4px;
  font: 12px/1.5 system-ui, sans-serif; pointer-events: none; }
.microscope .t:focus { outline: 2px solid var(--s3); outline-offset: 1px; }
.microscope .choose label { margin-right: .75rem; white-space: nowrap; }
"""

TEMPLATE = """
{%- macro tokens(some) -%}
{%- for t in some -%}
{%- if t.gap %}<span class="faint"> [{{ t.gap }} tokens left out] </span>{% else -%}
<span class="t{{ " s%d" % t.shade if t.shade }}{{ " a" if t.answer }}" tabindex="0">{{ t.text }}<i>{{ t.said }}
{%- for other in t.others or () %}{{ loop.first and ":" or "," }} {{ other }}{% endfor %}</i></span>
{%- endif -%}
{%- endfor -%}
{%- endmacro -%}
{%- macro body(one) %}
{% if one.question %}<p class="faint">{{ one.question }}</p>{% endif %}
<div class="both"><div class="tokens">
{%- if one.thinking %}<details><summary>thinking: {{ one.thought }} tokens</summary>
{{- tokens(one.thinking) }}</details>{% endif -%}
{{ tokens(one.tokens) }}</div>
<svg viewBox="-24 -4 200 90" role="img" aria-label="running mean of token probabilities; it ends at {{ one.end }}">
<path d="M0 0V70H160" fill="none" stroke="currentColor" stroke-width=".7"/>
{% if one.at is not none %}
<path d="M{{ one.at }} 0V70" stroke="currentColor" stroke-width=".7" stroke-dasharray="2 2"/>
{% endif %}
<polyline points="{{ one.line }}" fill="none" stroke="currentColor" stroke-width="1.4"/>
<text x="-3" y="4" text-anchor="end">1</text><text x="-3" y="72" text-anchor="end">{{ one.low }}</text>
<text x="0" y="82">running mean, ends at {{ one.end }}</text></svg></div>
{% endmacro -%}
<div class="microscope{{ " themed" if themed }}"><style>{{ style | safe }}</style>
<p class="faint">Probability of a token, at least: <span class="t">.999</span> <span class="t s1">.99</span>
<span class="t s2">.9</span> <span class="t s3">.5</span> <span class="t s4">less</span>; the answer is
<span class="t a">boxed</span>, and the dashed line is where it begins. Hover over a token, or reach it by Tab: its
probability, the mean so far, and, where its logits were kept, the most probable tokens.
{% if unspelt %}A number in brackets is the id of a token whose tokenizer is not here.{% endif %}</p>
{% if folded %}
<p class="choose" hidden>
{% for name, values in choices.items() %}
<label>{{ name }} <select name="{{ name }}"><option value="">all</option>
{% for value in values %}<option>{{ value }}</option>{% endfor %}</select></label>
{% endfor %}</p>
{% for one in views %}
<details data-model="{{ one.model }}" data-dataset="{{ one.dataset }}" data-answer="{{ one.verdict }}"
data-mean="{{ one.mean }}"><summary>{{ one.title }}</summary>{{ body(one) }}</details>
{% endfor %}
{% else %}
{% for one in views %}<div class="card"><p>{{ one.title }}</p>{{ body(one) }}</div>{% endfor %}
{% endif %}
</div>
"""
