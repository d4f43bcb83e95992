// A number's row is in a folded list: unfold it when a link leads to it.
function unfold() {
  const at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let up = at; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
  if (at) at.scrollIntoView({block: "center"});
}
addEventListener("hashchange", unfold);
unfold();
