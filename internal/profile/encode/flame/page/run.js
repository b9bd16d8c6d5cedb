// ---- The static parts: facts of the measurement, and the options of menus.

function showRun(data) {
  const { meta: m, samples, values, losses } = data;
  const counted = data.mixed ? -1 : values.findIndex((v) => v.unit === 'count');
  const rate = m.frequency ? `${digits.format(m.frequency)} Hz` : m.period ? `every ${digits.format(m.period)}` : '';
  const sum = (column) => {
    let all = 0;
    for (const v of column) all += v;
    return all;
  };
  byId('summary').textContent = [
    m.scope, values.length ? spokenAmount(sum(samples.values[data.value]), values[data.value]) : '',
    data.base && values.length ? `before: ${spokenAmount(sum(samples.values[values.length + data.value]), values[data.value])}${data.base.seconds ? ` in ${duration(data.base.seconds)}` : ''}` : '',
    m.seconds ? duration(m.seconds) : '',
    m.start ? new Date(m.start).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }) : '',
  ].filter(Boolean).join(' · ');
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
  byId('lost').textContent = data.lost.join(', ') || (m.converted ? '' : 'nothing lost');
  byId('losses').classList.toggle('warn', losses.length > 0);
  definitions(byId('remedies'), losses.map((l) => [l.what, [l.effect, l.remedy].filter(Boolean).join('; ')]));
  choices(byId('value'), values.map((type, i) => [String(i), valueName(type)]), String(data.value));
  choices(byId('task'), taskChoices(data, data.value), '');
  byId('task').closest('label').hidden = data.tasks.pid.length < 2;
  choices(byId('color'), [...(data.compared ? [['change', 'Change']] : []),
    ['kind', 'Kind'], ['module', 'Module'], ['name', 'Name']], 'kind');
}

