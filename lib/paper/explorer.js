// The interactive part of a page: reliability of a score, and responses token by token.
// explorer.py writes the data. Words reach the page by textContent alone.
"use strict";
const DRAWS = 500; // of outcomes by chance
const SEED = 5;
const ROUNDING = 8 * Number.EPSILON; // as in metrics.bin_index
const UNITS = 10000; // of a confidence of 1
const SHADES = [0.999, 0.99, 0.9, 0.5]; // ever darker below each
// of the diagram and of the histogram: right answers above, wrong ones below (explorer.html.jinja)
const PLOT = {left: 44, right: 344, top: 20, bottom: 320};
const BARS = {middle: 392, height: 40};

const explorer = document.getElementById("explorer");
const data = explorer && JSON.parse(document.getElementById("explorer-data").textContent);
const control = name => explorer.querySelector(`[data-name="${name}"]`);
const tell = words => {
  for (const [name, text] of Object.entries(words)) control(name).textContent = text;
};

// ---- numbers
// A bin holds its right edge, and the first holds 0, too.
function binOf(confidence, bins) {
  const edge = Math.round(confidence * bins);
  const isOnEdge = Math.abs(confidence - edge / bins) <= ROUNDING;
  const index = isOnEdge ? edge - 1 : Math.floor(confidence * bins);
  return Math.min(Math.max(index, 0), bins - 1);
}

function confidenceOf(score, row) {
  const unit = score.confidence[row];
  return unit === null ? null : unit / UNITS;
}

function rowsOf(pair, score) {
  const describe = (right, row) => ({confidence: confidenceOf(score, row), right: Number(right)});
  return [...pair.right].map(describe).filter(row => row.confidence !== null);
}

function sumBins(rows, bins) {
  const sums = Array.from({length: bins}, () => ({count: 0, confidence: 0, right: 0}));
  for (const row of rows) {
    row.bin = binOf(row.confidence, bins);
    sums[row.bin].count += 1;
    sums[row.bin].confidence += row.confidence;
    sums[row.bin].right += row.right;
  }
  return sums;
}

const total = values => values.reduce((sum, value) => sum + value, 0);
const errorOf = (sums, rights, n) =>
  total(sums.map((bin, i) => Math.abs(rights[i] - bin.confidence))) / n;

// mulberry32: the same numbers in [0, 1) in every browser
function randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6D2B79F5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

const quantile = (sorted, share) => sorted[Math.round(share * (sorted.length - 1))];

// Outcomes drawn from the scores themselves: the errors, and the right answers of each bin.
function drawChance(rows, sums) {
  const random = randomNumbers(SEED);
  const errors = [];
  const drawn = sums.map(() => []);
  for (let draw = 0; draw < DRAWS; draw++) {
    const rights = sums.map(() => 0);
    for (const row of rows) if (random() < row.confidence) rights[row.bin] += 1;
    errors.push(errorOf(sums, rights, rows.length));
    rights.forEach((right, i) => drawn[i].push(right));
  }
  for (const values of [errors, ...drawn]) values.sort((a, b) => a - b);
  const floors = drawn.map(values => [quantile(values, 0.025), quantile(values, 0.975)]);
  return {mean: total(errors) / DRAWS, high: quantile(errors, 0.95), floors};
}

// .053 and 1.000, as in the tables
const format = value => value === null ? "–" : value.toFixed(3).replace(/^0/, "");

// ---- pictures
const across = share => PLOT.left + share * (PLOT.right - PLOT.left);
const down = share => PLOT.bottom - share * (PLOT.bottom - PLOT.top);

function draw(svg, kind, attributes, text = "") {
  const shape = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
  if (text) draw(shape, "title", {}).textContent = text;
  return svg.appendChild(shape);
}

// The gray floor of a bin, its gap to the diagonal, and its share of right answers.
function drawBin(svg, bin, floor, range, largest) {
  const confidence = bin.confidence / bin.count;
  const share = bin.right / bin.count;
  const [low, high] = floor.map(right => right / bin.count);
  const x = across(confidence);
  const words = `${range}: ${bin.count} responses, confidence ${format(confidence)}, `
    + `right ${format(share)}; by chance ${format(low)} to ${format(high)}`;
  const height = Math.max(2, down(low) - down(high));
  draw(svg, "rect", {class: "floor", x: x - 5, width: 10, y: down(high), height}, words);
  draw(svg, "line", {class: "gap", x1: x, x2: x, y1: down(share), y2: down(confidence)});
  const r = 2.5 + 5 * Math.sqrt(bin.count / largest);
  draw(svg, "circle", {class: "bin", cx: x, cy: down(share), r}, words);
}

function drawBars(svg, bin, x, width, scale) {
  const top = BARS.middle - bin.right * scale;
  const bars = {right: [bin.right, top], wrong: [bin.count - bin.right, BARS.middle]};
  for (const [kind, [count, y]] of Object.entries(bars)) {
    draw(svg, "rect", {class: kind, x, width, y, height: count * scale}, `${count} ${kind}`);
  }
}

function drawDiagram(sums, floors, confidence) {
  const svg = control("diagram");
  svg.replaceChildren();
  const largest = Math.max(...sums.map(bin => bin.count));
  const highest = Math.max(...sums.map(bin => Math.max(bin.right, bin.count - bin.right)));
  const width = (PLOT.right - PLOT.left) / sums.length - 1;
  sums.forEach((bin, i) => {
    const range = `${format(i / sums.length)} to ${format((i + 1) / sums.length)}`;
    if (bin.count) drawBin(svg, bin, floors[i], range, largest);
    drawBars(svg, bin, across(i / sums.length), width, BARS.height / highest);
  });
  if (confidence === null) return;
  const x = across(confidence);
  const line = {class: "read", x1: x, x2: x, y1: PLOT.top, y2: BARS.middle + BARS.height};
  draw(svg, "line", line, "the response below");
}

// ---- what is chosen
const chosen = name => control(name).value;
const chosenPair = () => data.pairs[chosen("pair")];
const scoresOf = estimator => chosenPair().scores.filter(score => score.estimator === estimator);
const responsesOfKind = () => chosenPair().responses.filter(one => one.kind === chosen("kind"));

// Fill a list, and keep what was chosen if it is still there, else the wanted or the first one.
function fill(name, labels, values, wanted) {
  const select = control(name);
  const before = select.value || wanted;
  select.replaceChildren();
  labels.forEach((label, i) => select.add(new Option(label, values[i])));
  select.value = values.includes(before) ? before : values[0];
}

function showChoices() {
  const estimators = [...new Set(chosenPair().scores.map(score => score.estimator))];
  fill("estimator", estimators, estimators, "Ans Avg");
  const methods = scoresOf(chosen("estimator")).map(score => score.method);
  fill("method", methods, methods, "raw");
  const kinds = [...new Set(chosenPair().responses.map(response => response.kind))];
  fill("kind", kinds, kinds);
  control("responses").hidden = kinds.length === 0;
}

let place = 0; // of the response that is read, among those of its kind
function show() {
  const scores = scoresOf(chosen("estimator"));
  const score = scores.find(one => one.method === chosen("method"));
  const rows = rowsOf(chosenPair(), score);
  const sums = sumBins(rows, Number(chosen("bins")));
  const rights = sums.map(bin => bin.right);
  const chance = drawChance(rows, sums);
  const response = responsesOfKind()[place];
  const listed = [];
  for (const one of chosenPair().scores) {
    const confidence = response ? confidenceOf(one, response.row) : null;
    if (one.method === score.method) listed.push(`${one.estimator} ${format(confidence)}`);
  }
  tell({
    count: sums.length,
    n: rows.length,
    accuracy: format(total(rights) / rows.length),
    ece: format(errorOf(sums, rights, rows.length)),
    chance: `${format(chance.mean)} (95%: ${format(chance.high)})`,
    auroc: format(score.auroc),
    brier: format(score.brier),
    listed: `${score.method}: ${listed.join(", ")}`,
  });
  drawDiagram(sums, chance.floors, response ? confidenceOf(score, response.row) : null);
}

// ---- responses
// A token in the text; what is told of it is its probability, and the most probable ones.
function boxToken([text, probability, isAnswer, others = []]) {
  const shade = SHADES.filter(least => probability < least).length;
  const box = document.createElement("span");
  box.textContent = text;
  box.className = isAnswer ? `s${shade} boxed` : `s${shade}`;
  box.tabIndex = -1;
  const spell = ([word, p]) => `${JSON.stringify(word)} ${p.toFixed(4)}`;
  const rest = others.length ? `; most probable: ${others.map(spell).join(", ")}` : "";
  box.onfocus = box.onpointerenter = () => tell({token: spell([text, probability]) + rest});
  return box;
}

function showResponse() {
  show();
  const responses = responsesOfKind();
  if (!responses.length) return;
  const {title, question, left_out, tokens} = responses[place];
  tell({
    title,
    question,
    place: `${place + 1} of ${responses.length}`,
    left_out: left_out ? `The first ${left_out} tokens are left out.` : "",
    token: "Point at a token, or use the arrow keys.",
  });
  control("tokens").replaceChildren(...tokens.map(boxToken));
}

function step(by) {
  place = (place + by + responsesOfKind().length) % responsesOfKind().length;
  showResponse();
}

function moveToken(event) {
  const towards = {ArrowLeft: "previousSibling", ArrowRight: "nextSibling"}[event.key];
  if (!towards) return;
  event.preventDefault();
  const first = control("tokens").firstChild;
  const next = event.target.matches("span") ? event.target[towards] : first;
  next?.focus();
}

function restart() {
  place = 0;
  showChoices();
  showResponse();
}

if (data && data.pairs.length) {
  const labels = data.pairs.map(pair => pair.label);
  fill("pair", labels, Object.keys(labels), String(data.first));
  control("bins").max = data.most_bins;
  control("bins").value = data.bins;
  control("pair").onchange = control("kind").onchange = restart;
  control("estimator").onchange = () => { showChoices(); show(); };
  control("method").onchange = control("bins").oninput = show;
  control("previous").onclick = () => step(-1);
  control("next").onclick = () => step(1);
  control("tokens").onkeydown = moveToken;
  restart();
}
