// ---- Names of frames.

class Names {
  constructor({ frames, strings, kinds }) {
    Object.assign(this, { frames, strings, kinds });
    this.isShort = false; // the switch
    this.keys = [];
  }

  // of returns the whole name, shown the one that the switch selects, and inShort the
  // short one.
  of(frame) { return this.strings[this.frames.name[frame]]; }
  inShort(frame) { return this.strings[this.frames.short[frame]]; }
  shown(frame) { return this.isShort ? this.inShort(frame) : this.of(frame); }

  // fit returns as much of a name as room characters can show: the name, the short
  // name, or the function's own name, which is cut last. Labels are monospaced, so
  // counting is enough; fillText squeezes the wide characters of other scripts.
  fit(frame, room) {
    const name = this.shown(frame);
    if (name.length <= room) return name;
    const short = this.inShort(frame);
    if (short.length <= room) return short;
    const own = this.strings[this.frames.own[frame]];
    if (own.length < short.length) {
      const before = short.slice(0, -own.length);
      for (const text of [`…${before.endsWith('::') ? '::' : before.slice(-1)}${own}`, `…${own}`]) {
        if (text.length <= room) return text;
      }
    }
    return cut(own, room);
  }

  inlined(frame) { return this.frames.inlined[frame] === 1; }

  // beforeAddress returns the name of an address without a function up to the address,
  // "[libfoo.so+0x", and nothing for other frames.
  beforeAddress(frame) {
    const name = this.of(frame);
    return this.kinds[this.frames.kind[frame]] === 'unresolved' && name.startsWith('[') ? name.slice(0, name.lastIndexOf('+0x') + 3) : '';
  }

  // key identifies a frame in the page's address.
  key(frame) {
    const { frames, strings, kinds } = this;
    return this.keys[frame] ??= hash([
      strings[frames.name[frame]], strings[frames.module[frame]], kinds[frames.kind[frame]], frames.inlined[frame],
    ].join('\n')).toString(36);
  }
}

// cut returns as much of the beginning of a text as room characters can show, or
// nothing if it would be unreadable.
function cut(text, room) {
  if (text.length <= room) return text;
  if (room < 3) return '';
  const half = /[\ud800-\udbff]$/; // half of a surrogate pair
  return `${text.slice(0, room - 1).replace(half, '')}…`;
}

