"use strict";
// Reads values off the curves, with the pointer or the arrow keys, and opens everything for printing. Nothing else.
for (const figure of document.querySelectorAll("figure[data-readout]")) {
  const values = JSON.parse(figure.dataset.readout);
  if (values.length === 0) continue;
  const canvas = figure.querySelector(".canvas");
  const cursor = figure.querySelector(".cursor");
  const readout = figure.querySelector(".readout");
  let at = values.length - 1;
  const show = (index) => {
    at = Math.min(values.length - 1, Math.max(0, index));
    cursor.hidden = false;
    cursor.style.left = values[at][0] + "%";
    readout.textContent = values[at][1];
    canvas.setAttribute("aria-valuenow", at + 1);
    canvas.setAttribute("aria-valuetext", values[at][1]);
  };
  const hide = () => {
    cursor.hidden = true;
    readout.textContent = "";
  };
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "slider");
  canvas.setAttribute("aria-label", canvas.querySelector("svg").getAttribute("aria-label") + " Arrow keys read values.");
  canvas.setAttribute("aria-valuemin", 1);
  canvas.setAttribute("aria-valuemax", values.length);
  canvas.setAttribute("aria-valuenow", values.length);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const wanted = (100 * (event.clientX - box.left)) / box.width;
    let best = 0;
    values.forEach(([left], index) => {
      if (Math.abs(left - wanted) < Math.abs(values[best][0] - wanted)) best = index;
    });
    show(best);
  });
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("focus", () => show(at));
  canvas.addEventListener("blur", hide);
  canvas.addEventListener("keydown", (event) => {
    const goal = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, Home: 0, End: values.length - 1 };
    if (!(event.key in goal)) return;
    event.preventDefault();
    show(goal[event.key]);
  });
}
const closed = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    closed.push(details);
    details.open = true;
  }
});
addEventListener("afterprint", () => {
  for (const details of closed.splice(0)) details.open = false;
});
