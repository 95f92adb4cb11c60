// Elements of the page: made once, then changed in place, so that what is focused, open or read stays so.

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Children of `parent` as `items` are: kept by their key, made where they are missing, and filled.
export function keyed(parent, items, keyOf, build, fill) {
  const present = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item)), node = present.get(key) ?? build(item);
    node.dataset.key = key;
    present.delete(key);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
    fill(node, item);
  }
  for (const node of present.values()) node.remove();
}

export function pairs(list, rows) {
  const build = () => make("div", {}, make("dt"), make("dd"));
  keyed(list, rows, ([name]) => name, build, (row, [name, text, state]) => {
    write(row.firstElementChild, name);
    write(row.lastElementChild, text);
    if (state !== undefined) row.dataset.state = state;
  });
}
