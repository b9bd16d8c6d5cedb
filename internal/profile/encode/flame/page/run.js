// ---- The static parts: facts of the measurement, and the options of menus.

function sum(column) {
  let all = 0;
  for (let i = 0; i < column.length; i++) all += column[i]; // much faster than an iterator
  return all;
}

// showSummary shows the total of a value with the duration of the measurement.
function showSummary({ meta: m, samples, values, base }, value) {
  const total = (column, seconds) => {
    const type = values[value];
    const text = spokenAmount(sum(samples.values[column]), type);
    return `${text}${type.unit === 'count' ? '' : ` of ${nameInText(type)}`}${seconds ? ` in ${duration(seconds)}` : ''}`;
  };
  const text = [
    m.scope, values.length ? total(value, m.seconds) : '',
    base && values.length ? `${base.name ?? 'before'}: ${total(values.length + value, base.seconds)}` : '',
    m.start ? new Date(m.start).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }) : '',
  ].filter(Boolean).join(' · ');
  byId('summary').textContent = text;
  byId('summary').title = shortened(text);
}

function showRun(data) {
  const { meta: m, samples, values, losses } = data;
  const counted = data.mixed ? -1 : values.findIndex((v) => v.unit === 'count');
  const rate = m.frequency ? `${digits.format(m.frequency)} Hz` : m.period ? `every ${digits.format(m.period)}` : '';
  definitions(byId('facts'), [
    ['Command', m.command],
    ['Host', m.host],
    ['Kernel', [m.kernel, m.arch].filter(Boolean).join(' ')],
    ['CPUs', m.cpus ? String(m.cpus) : ''],
    ['Duration', m.seconds ? duration(m.seconds) : ''],
    ['Event', [m.event, rate].filter(Boolean).join(', ')],
    [capital(data.noun ?? 'samples'), counted < 0 ? '' : digits.format(sum(samples.values[counted]))],
  ].filter(([, text]) => text));
  // Conversions need not report losses.
  const lost = data.lost.length;
  byId('lost').textContent = lost ? `${lost} ${lost === 1 ? 'loss' : 'losses'}` : m.converted ? 'About' : 'Nothing lost';
  byId('lost').classList.toggle('warn', lost > 0);
  byId('losses').hidden = lost === 0 && losses.length === 0;
  byId('lost').title = data.lost.map((text) => shortened(text)).join(', ') || 'What was measured';
  definitions(byId('remedies'), losses.map((l) => [l.what, [l.effect, l.remedy].filter(Boolean).join('; ')]));
  choices(byId('value'), values.map((type, i) => [String(i), valueName(type)]), String(data.value));
  choices(byId('color'), [...(data.compared ? [['change', 'Change']] : []),
    ['kind', 'Kind'], ['module', 'Module'], ['name', 'Name']], 'kind');
}

