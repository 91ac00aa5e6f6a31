// Building and patching the page. Text only ever becomes a text node: nothing here parses markup.

const SVG = 'http' + '://www.w3.org/2000/svg';

/**
 * Fills an element: attributes, listeners (`onclick: f`), properties (`value`, `checked`), children.
 * @param {Element} node
 * @param {Props | null | undefined} props
 * @param {Child[]} children
 */
function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') node.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (name === 'value' || name === 'checked' || name === 'open') Reflect.set(node, name, value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...flat(children));
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function flat(children) {
  return children.flat(3).filter((c) => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c)));
}

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props | null} [props]
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  fill(node, props, children);
  return node;
}

/**
 * @param {string} tag
 * @param {Props} [props]
 * @param {Child[]} children
 * @returns {SVGElement}
 */
export function s(tag, props, ...children) {
  const node = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  fill(node, props, children);
  return node;
}

/** An icon of the sprite in index.html. @param {string} name @param {string} [cls] */
export function icon(name, cls = '') {
  return s('svg', { class: `i ${cls}`.trim(), viewBox: '0 0 16 16', 'aria-hidden': 'true' }, s('use', { href: `#i-${name}` }));
}

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`no element ${id}`);
  return node;
}

/** Sets a text if it is another one. @param {Element | null} node @param {string} text */
export function say(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}

/** Replaces the children of an element. @param {Element} node @param {Child[]} children */
export function put(node, ...children) {
  node.replaceChildren(...flat(children));
}

/**
 * Makes the children of a parent those of a list, by key: known ones are updated in place and only
 * moved if their order changed, so that focus and scroll stay.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => HTMLElement} make
 * @param {(node: HTMLElement, item: T) => void} update
 */
export function keyed(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((c) => [/** @type {HTMLElement} */ (c).dataset.key ?? '', /** @type {HTMLElement} */ (c)]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let node = known.get(k);
    known.delete(k);
    if (!node) {
      node = make(item);
      node.dataset.key = k;
    }
    update(node, item);
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  for (const node of known.values()) node.remove();
}

/** Copies a text; where the clipboard is not allowed, selects it for the person to copy. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h('textarea', { class: 'vh', 'aria-hidden': 'true', value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}
