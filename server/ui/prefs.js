// What this browser remembers of its owner's taste. Nothing here leaves the browser.

const KEY = 'windlass';

/** @typedef {{ theme: 'system' | 'light' | 'dark', utc: boolean, keys: boolean }} Prefs */

/** @returns {Prefs} */
function load() {
  /** @type {Prefs} */
  const known = { theme: 'system', utc: true, keys: true };
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? '{}');
    if (kept.theme === 'light' || kept.theme === 'dark') known.theme = kept.theme;
    if (kept.utc === false) known.utc = false;
    if (kept.keys === false) known.keys = false;
  } catch {
    // Storage that is off or holds something else: the defaults hold.
  }
  return known;
}

export const prefs = load();

/** @param {Partial<Prefs>} change */
export function prefer(change) {
  Object.assign(prefs, change);
  try {
    localStorage.setItem(KEY, JSON.stringify(prefs));
  } catch {
    // It holds for this tab.
  }
  showTheme();
}

export function showTheme() {
  if (prefs.theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = prefs.theme;
}

/** The next theme, for the button and the key. @returns {Prefs['theme']} */
export function nextTheme() {
  return prefs.theme === 'system' ? 'light' : prefs.theme === 'light' ? 'dark' : 'system';
}
