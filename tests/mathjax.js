// `node mathjax.js FOLDER < formulas.json`: what JupyterLab's own MathJax, in its folder of built files, makes of each
// formula of a JSON list: a line each with what it shows in red, or cannot read (a list, empty where all is well).
const fs = require("fs"), path = require("path");
const folder = process.argv[2], sources = {}, made = {};
globalThis.self = {rspackChunk_jupyterlab_application_top: {push: ([, some]) => Object.assign(sources, some)}};
for (const name of fs.readdirSync(folder).filter((name) => /^\d+\..*\.js$/.test(name))) {
  const text = fs.readFileSync(path.join(folder, name), "utf8");
  if (/mathjax|MathJax|MmlNode|\.TeX=/.test(text)) (0, eval)(text);
}
function load(id) {
  if (!(id in made)) {
    made[id] = {exports: {}};
    sources[id].call(made[id].exports, made[id], made[id].exports, load);
  }
  return made[id].exports;
}
const holds = (name) => load(Object.keys(sources).find((id) => sources[id].toString().includes(`.${name}=void 0`)));
const {TeX} = holds("TeX"), {AllPackages} = holds("AllPackages"), {MmlFactory} = holds("MmlFactory");
const needBrowser = ["require", "autoload", "bbox", "bussproofs"];  // the last two measure what is drawn
const tex = new TeX({packages: AllPackages.filter((name) => !needBrowser.includes(name))});
tex.setMmlFactory(new MmlFactory());
for (const math of JSON.parse(fs.readFileSync(0, "utf8"))) {
  const wrong = [];
  try {
    tex.compile({math, display: true, inputData: {}, start: {}, end: {}}, {}).walkTree((node) => {
      if (node.isKind("merror")) wrong.push(node.attributes.get("data-mjx-error") || "error");
      const colour = node.attributes && node.attributes.getExplicit("mathcolor");
      if (colour === "red") wrong.push(node.childNodes.map((child) => child.text || "").join(""));
    });
  } catch (error) { wrong.push(String(error)); }
  console.log(JSON.stringify(wrong));
}
