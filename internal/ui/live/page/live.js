'use strict';
(() => {
  const byId = (id) => document.getElementById(id);
  const has = { first: 0, last: 0 }; // windows on the server
  let live = true;
  let ended = ''; // why there will be no more windows
  let shown = 0; // number of the visible window
  let coming = 0; // number of the window that is loading, 0 if none
  let wanted = 0; // number of the requested window
  let frame = null;

  // hashOf returns the state that the user chose in a window's page, which the page
  // keeps in its address. The next page keeps the graph's direction, too, which would otherwise
  // depend on its height.
  const hashOf = (f) => {
    if (!f) return '';
    const state = new URLSearchParams(f.contentWindow.location.hash.slice(1));
    const { hanging } = f.contentDocument.body.dataset;
    if (hanging && !state.has('invert')) state.set('invert', hanging);
    const text = String(state);
    return text && `#${text}`;
  };

  // show shows a window once it is drawn, which avoids flicker.
  function show(n) {
    wanted = n;
    if (n === 0 || coming !== 0 || n === shown) return;
    coming = n;
    const next = document.createElement('iframe');
    next.title = `Flame graph of window ${n}`;
    next.className = 'behind';
    next.src = `window/${n}${hashOf(frame)}`;
    next.addEventListener('load', () => whenReady(next, (ok) => {
      coming = 0;
      if (ok) {
        swap(next, n);
      } else {
        next.remove();
        if (wanted === n) wanted = shown;
      }
      if (wanted !== n) show(wanted);
    }), { once: true });
    byId('frames').append(next);
  }

  // whenReady calls act once a window's page has drawn itself, or has failed to load
  // because the server no longer keeps it.
  function whenReady(f, act) {
    const state = f.contentDocument?.documentElement.dataset.ready;
    if (state !== undefined) act(state === 'true');
    else if (!f.contentDocument?.getElementById('data')) act(false);
    else setTimeout(() => whenReady(f, act), 20);
  }

  function swap(next, n) {
    const focused = document.activeElement === frame;
    const hash = hashOf(frame);
    // The user may have changed the view meanwhile.
    if (frame && hash !== hashOf(next)) next.contentWindow.location.replace(`${next.contentWindow.location.pathname}${hash || '#'}`);
    next.className = '';
    if (focused) takeFocus(next);
    frame?.remove();
    frame = next;
    shown = n;
    next.contentWindow.addEventListener('keydown', press);
    showControls();
  }

  // takeFocus moves the focus and the caret from the visible page to the next one,
  // so that the user can go on typing.
  function takeFocus(next) {
    const there = frame.contentDocument.activeElement;
    const { selectionStart, selectionEnd, selectionDirection } = there;
    const focusVisible = there.matches(':focus-visible');
    next.focus(); // moves the focus away from the visible page
    const here = there.id ? next.contentDocument.getElementById(there.id) : null;
    here?.focus({ preventScroll: true, focusVisible });
    if (here && typeof selectionStart === 'number') here.setSelectionRange(selectionStart, selectionEnd, selectionDirection);
  }

  function showControls() {
    byId('live').setAttribute('aria-pressed', String(live && ended === ''));
    byId('live').disabled = ended !== '';
    byId('previous').disabled = shown <= has.first;
    byId('next').disabled = shown === 0 || shown >= has.last;
    if (has.last === 0) return;
    const state = ended ? ended : live ? 'live' : 'paused';
    byId('status').textContent = `Window ${shown} of ${has.last}, ${state}`;
    document.documentElement.dataset.shown = String(shown);
  }

  function setLive(on) {
    live = on;
    if (live) show(has.last);
    showControls();
  }
  function step(by) {
    if (has.last === 0) return;
    const from = live ? shown : wanted; // while paused, wanted is the target of the previous step
    live = false;
    show(Math.min(Math.max(from + by, has.first), has.last));
    showControls();
  }
  function press(event) {
    const { tagName } = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || ['INPUT', 'SELECT', 'BUTTON'].includes(tagName)) return;
    if (event.key === ' ' && ended === '') setLive(!live);
    else if (event.key === '[') step(-1);
    else if (event.key === ']') step(1);
    else return;
    event.preventDefault();
  }

  byId('live').addEventListener('click', () => setLive(!live));
  byId('previous').addEventListener('click', () => step(-1));
  byId('next').addEventListener('click', () => step(1));
  document.addEventListener('keydown', press);

  function end(why) {
    if (ended) return;
    ended = why;
    events.close();
    if (has.last === 0) byId('status').textContent = `No window: ${why}.`;
    showControls();
  }
  const events = new EventSource('events');
  events.addEventListener('message', (event) => {
    Object.assign(has, JSON.parse(event.data));
    if (live || shown === 0) show(has.last);
    showControls();
  });
  events.addEventListener('end', () => end('the measurement has ended'));
  events.addEventListener('error', () => end('the connection has ended'));
})();
