// ---- DOM helpers. Text reaches the page as textContent, and the canvas by
// fillText, so untrusted names are never markup.

const byId = (id) => document.getElementById(id);

// Longer texts are truncated: browsers need seconds to break the longest possible
// names into lines.
const MAX_TEXT = 4000;
const shortened = (text) => text.length <= MAX_TEXT ? text
  : `${text.slice(0, MAX_TEXT)}… (${digits.format(text.length)} characters)`;

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = shortened(text);
  if (className) e.className = className;
  return e;
}

function button(text, onClick, className) {
  const b = element('button', text, className);
  b.type = 'button';
  b.addEventListener('click', onClick);
  return b;
}

// definitions fills a dl from [term, text, class name of the text].
function definitions(list, facts) {
  list.replaceChildren(...facts.map(([term, text, className]) => {
    const pair = element('div');
    pair.append(element('dt', term), element('dd', text, className));
    return pair;
  }));
  return list;
}

// choices fills a select from [value, text]; a null value cannot be selected. It
// hides a select without a choice.
function choices(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => {
    const option = element('option', text);
    option.value = value ?? '';
    option.disabled = value === null;
    return option;
  }));
  select.value = chosen;
  select.closest('label').hidden = options.length < 2;
}

