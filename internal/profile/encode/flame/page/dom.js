// ---- Elements of the page. Whatever is shown reaches them as textContent and
// the canvas by fillText: foreign names are never markup.

const byId = (id) => document.getElementById(id);

// A longer text is cut: to break the longest names there are into lines takes
// browsers seconds.
const MOST_TEXT = 4000;
const shortened = (text) => text.length <= MOST_TEXT ? text
  : `${text.slice(0, MOST_TEXT)}… (${digits.format(text.length)} characters)`;

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

// definitions fills a dl with [term, text, class name of the text].
function definitions(list, facts) {
  list.replaceChildren(...facts.map(([term, text, className]) => {
    const pair = element('div');
    pair.append(element('dt', term), element('dd', text, className));
    return pair;
  }));
  return list;
}

// choices fills a select with [value, text], null for what cannot be chosen,
// and hides it if it offers no choice.
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

