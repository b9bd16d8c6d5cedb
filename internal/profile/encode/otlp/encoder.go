package otlp

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math"
	"path"
	"slices"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/locations"
	"fulgur/internal/profile/encode/proto"
	"fulgur/internal/profile/otelprofiles"
	"fulgur/internal/profile/runinfo"
	"fulgur/internal/unwind/stackend"
)

// encoder encodes a profile. Messages refer to the tables of the dictionary, which is
// complete only after all of them.
type encoder struct {
	p          *profile.Profile
	types      []profile.ValueType // of p's values; readers add up values of the same type
	options    Options
	profiles   int // number of encoded profiles
	dictionary *dictionary
	used       *locations.Table
	// The rows of the profile's own tables in the dictionary; -1 if not yet known.
	stacks, mappings, functions []int32
	locations                   []int32 // by identifier
	run                         []int32 // attributes of all profiles: rows of the dictionary
	tasks                       map[taskKey]context
	labels                      map[profile.LabelsID]*labels
}

// taskKey holds the inputs of a sample's attributes.
type taskKey struct {
	task profile.TaskID
	cpu  int
	end  stackend.End
}

// context is what a sample has except for its stack and values: rows of the dictionary.
type context struct {
	attributes []int32
	*labels
}

// labels are the labels of any number of tasks: rows of the dictionary, and their key.
type labels struct {
	rows []int32
	key  string
	link int32
}

// key returns a key of a map for rows of the dictionary.
func key(rows []int32) string {
	var b []byte
	for _, r := range rows {
		b = binary.BigEndian.AppendUint32(b, uint32(r))
	}
	return string(b)
}

func newEncoder(p *profile.Profile, o Options) *encoder {
	unknown := func(n int) []int32 { return slices.Repeat([]int32{-1}, n) }
	types, known := slices.Clone(p.ValueTypes), map[profile.ValueType]bool{}
	for i, name := range p.ValueNames() {
		if known[types[i]] {
			types[i].Type = name
		}
		known[types[i]] = true
	}
	return &encoder{
		p: p, types: types, options: o, dictionary: newDictionary(), used: locations.New(p), tasks: map[taskKey]context{}, labels: map[profile.LabelsID]*labels{},
		stacks: unknown(len(p.Stacks)), mappings: unknown(len(p.Mappings)), functions: unknown(len(p.Functions)),
		locations: []int32{0},
	}
}

// sample is a sample in terms of the dictionary.
type sample struct {
	stack int32
	context
	values []int64
}

// process is the samples of a process.
type process struct {
	processKey
	comm    string // of its main thread, "" if unknown
	samples []sample
}

// processKey identifies a process. One that moves to another container is another one.
type processKey struct {
	pid   int
	owner profile.OwnerID
}

// keyOf returns the process of a sample.
func keyOf(p *profile.Profile, s profile.Sample) processKey {
	return processKey{p.Tasks[s.Task].PID, p.Tasks[s.Task].Owner}
}

// encode returns the parts of the file.
func (e *encoder) encode() []proto.Message {
	var bodies [][]proto.Message // by process and value
	processes := e.processes()
	e.run = e.describeRun()
	for _, p := range processes {
		var list []proto.Message
		for v := range e.p.ValueTypes {
			list = append(list, e.profile(p, v))
		}
		bodies = append(bodies, list)
	}
	tables := e.dictionary.tables()
	sum := sha256.New()
	size := 0
	for _, t := range tables {
		sum.Write(t)
		size += len(t)
	}
	contents := sum.Sum(nil)

	var parts []proto.Message
	scope := e.scope()
	for i, p := range processes {
		var profiles proto.Message
		profiles.Message(otelprofiles.ScopeProfilesScope, scope)
		of := e.resource(p)
		for _, body := range bodies[i] {
			body.Message(otelprofiles.ProfileID, identifier(contents, scope, of, body))
			profiles.Message(otelprofiles.ScopeProfilesProfile, body)
			e.profiles++
		}
		var resource, head proto.Message
		resource.Message(otelprofiles.ResourceProfilesResource, of)
		resource.Announce(otelprofiles.ResourceProfilesScope, len(profiles))
		head.Announce(otelprofiles.DataResource, len(resource)+len(profiles))
		parts = append(parts, head, resource, profiles)
	}
	var head proto.Message
	head.Announce(otelprofiles.DataDictionary, size)
	return slices.Concat(parts, []proto.Message{head}, tables)
}

// identifier returns the ID of a profile: a hash of all that it consists of.
func identifier(dictionary []byte, scope, resource, body proto.Message) proto.Message {
	sum := sha256.New()
	for _, part := range [][]byte{dictionary, scope, resource, body} {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		sum.Write(part)
	}
	return sum.Sum(nil)[:16]
}

// processes returns the samples by process and owner, in the order of their PIDs. Samples
// that differ only in data that the format cannot express are added up. Without samples, there is
// one process without a PID, so that the file describes the measurement and its losses.
func (e *encoder) processes() []process {
	type identity struct {
		stack, link        int32
		attributes, labels string
	}
	byKey := map[processKey]*process{}
	known := map[processKey]map[identity]int{} // index of the sample
	for _, s := range e.p.Samples {
		of := keyOf(e.p, s)
		if byKey[of] == nil {
			byKey[of], known[of] = &process{processKey: of}, map[identity]int{}
		}
		p := byKey[of]
		if task := e.p.Tasks[s.Task]; task.Guessed || task.PID != 0 && task.TID == task.PID {
			p.comm = task.Comm
		}
		c := e.context(s)
		id := identity{e.stack(s.Stack), c.link, key(c.attributes), c.key}
		i, ok := known[of][id]
		if !ok {
			known[of][id] = len(p.samples)
			p.samples = append(p.samples, sample{id.stack, c, slices.Clone(s.Values)})
			continue
		}
		for v, n := range s.Values {
			p.samples[i].values[v] += n
		}
	}
	if len(byKey) == 0 {
		return []process{{}}
	}
	var all []process
	for _, p := range byKey {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b process) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.owner, b.owner)) })
	return all
}

// context returns the attributes and the link of a sample.
func (e *encoder) context(s profile.Sample) context {
	key := taskKey{s.Task, s.CPU, stackend.None}
	if s.End.Cut() {
		key.end = s.End
	}
	c, ok := e.tasks[key]
	if ok {
		return c
	}
	d, task := e.dictionary, e.p.Tasks[s.Task]
	add := func(key string, value proto.Message) { c.attributes = append(c.attributes, d.attribute(key, value)) }
	if !task.Guessed { // otherwise it is the program's
		add(otelprofiles.ThreadName, anyText(task.Comm))
	}
	if task.TID != 0 {
		add(otelprofiles.ThreadID, anyNumber(int64(task.TID)))
	}
	if s.CPU >= 0 {
		add(otelprofiles.CPU, anyNumber(int64(s.CPU)))
	}
	if key.end != stackend.None {
		add(otelprofiles.StackEnd, anyText(key.end.String()))
	}
	c.labels = e.labelsAt(task.Labels)
	e.tasks[key] = c
	return c
}

// labelsAt returns the labels with an ID.
func (e *encoder) labelsAt(id profile.LabelsID) *labels {
	made, ok := e.labels[id]
	if ok {
		return made
	}
	made = &labels{}
	list := e.p.LabelsAt(id)
	trace, span, linked := list.IDs()
	if linked {
		made.link = e.dictionary.link(trace, span)
	}
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Key == list[0].Key {
			n++
		}
		name := valid(list[0].Key)
		if name != "" && !(linked && (name == profile.TraceID || name == profile.SpanID)) {
			made.rows = append(made.rows, e.dictionary.label(otelprofiles.LabelAttribute(name), list[:n]))
		}
		list = list[n:]
	}
	made.key = key(made.rows)
	e.labels[id] = made
	return made
}

// profile encodes one value of a process's samples.
func (e *encoder) profile(p process, value int) (m proto.Message) {
	meta, v := e.p.Meta, e.types[value]
	m.Message(otelprofiles.ProfileSampleType, e.valueType(v))
	var attributes []int32
	for _, s := range p.samples {
		if s.values[value] == 0 && value > 0 {
			continue // the first profile has all samples
		}
		var row proto.Message
		row.Int(otelprofiles.SampleStack, int64(s.stack))
		attributes = append(append(attributes[:0], s.attributes...), s.rows...)
		proto.Packed(&row, otelprofiles.SampleAttributes, attributes)
		row.Int(otelprofiles.SampleLink, int64(s.link))
		proto.Packed(&row, otelprofiles.SampleValues, s.values[value:value+1])
		m.Message(otelprofiles.ProfileSample, row)
	}
	if !meta.Start.IsZero() {
		m.Fixed64(otelprofiles.ProfileTime, uint64(meta.Start.UnixNano()))
	}
	m.Uint(otelprofiles.ProfileDuration, uint64(max(meta.Duration, 0)))
	if of, period := e.period(value); of != (profile.ValueType{}) {
		m.Message(otelprofiles.ProfilePeriodType, e.valueType(of))
		m.Int(otelprofiles.ProfilePeriod, period)
	}
	proto.Packed(&m, otelprofiles.ProfileAttributes, e.run)
	return m
}

// period returns the type and the length of a value's period. Readers multiply counts by it, so
// counts that may include waits have a period of 1, of their own type. So do values that were not
// sampled. Off-CPU time has no period.
func (e *encoder) period(value int) (profile.ValueType, int64) {
	v := e.types[value]
	waits := slices.Contains(e.p.ValueTypes, profile.OffCPUTime)
	switch {
	case e.p.Meta.Every != (profile.Interval{}):
		return e.p.Meta.Every.Of, e.p.Meta.Every.Amount
	case v == profile.OffCPUTime:
		return profile.ValueType{}, 0
	case e.p.Period() == 0 || waits && v.Unit == "count":
		return v, 1
	}
	sampled, _ := e.p.Sampled()
	return sampled.Of, sampled.Amount
}

func (e *encoder) valueType(v profile.ValueType) (m proto.Message) {
	if v == profile.OffCPUTime {
		v.Type = otelprofiles.OffCPU
	}
	m.Int(otelprofiles.ValueTypeType, e.dictionary.text(v.Type))
	m.Int(otelprofiles.ValueTypeUnit, e.dictionary.text(v.Unit))
	return m
}

// stack returns the row of a stack.
func (e *encoder) stack(id profile.StackID) int32 {
	if e.stacks[id] >= 0 {
		return e.stacks[id]
	}
	var list []int32
	for _, at := range slices.Clone(e.used.Stack(id)) {
		if int(at) == len(e.locations) {
			e.locations = append(e.locations, e.location(e.used.Frames(at)))
		}
		list = append(list, e.locations[at])
	}
	var row proto.Message
	proto.Packed(&row, otelprofiles.StackLocations, list)
	e.stacks[id] = e.dictionary.stacks.id(row)
	return e.stacks[id]
}

// location returns the row of a location with the given frames, the innermost first.
func (e *encoder) location(frames []profile.FrameID) int32 {
	var row proto.Message
	f := e.p.Frames[frames[0]]
	row.Int(otelprofiles.LocationMapping, int64(e.mapping(f.Mapping)))
	address := f.Call()
	if running, ok := e.p.Mappings[f.Mapping].Running(address); ok {
		address = running
	}
	row.Uint(otelprofiles.LocationAddress, address)
	for _, id := range frames {
		f := e.p.Frames[id]
		if f.Function == 0 {
			continue
		}
		var line proto.Message
		line.Int(otelprofiles.LineFunction, int64(e.function(f.Function)))
		line.Int(otelprofiles.LineLine, int64(f.Line))
		line.Int(otelprofiles.LineColumn, int64(f.Column))
		row.Message(otelprofiles.LocationLine, line)
	}
	if kind := e.frameType(f); kind != "" {
		proto.Packed(&row, otelprofiles.LocationAttributes, []int32{e.dictionary.attribute(otelprofiles.FrameType, anyText(kind))})
	}
	return e.dictionary.locations.id(row)
}

// frameType returns the value of [otelprofiles.FrameType] for a frame, or "" if none fits.
func (e *encoder) frameType(f profile.Frame) string {
	switch f.Kind {
	case profile.KindKernel:
		return otelprofiles.FrameKernel
	case profile.KindUser:
		return otelprofiles.FrameNative
	case profile.KindJIT:
		return otelprofiles.RuntimeFrames[e.p.Mappings[f.Mapping].Path]
	}
	return ""
}

// mapping returns the row of a mapping.
func (e *encoder) mapping(id profile.MappingID) int32 {
	if id == 0 || e.mappings[id] >= 0 {
		return max(e.mappings[id], 0)
	}
	m, d := e.p.Mappings[id], e.dictionary
	var row proto.Message
	if m.Placed || !profile.IsFile(m.Path) {
		row.Uint(otelprofiles.MappingStart, m.Start)
		row.Uint(otelprofiles.MappingLimit, m.Limit)
		row.Uint(otelprofiles.MappingOffset, m.Offset)
	} else {
		row.Uint(otelprofiles.MappingLimit, math.MaxUint64)
	}
	row.Int(otelprofiles.MappingFilename, d.text(m.Path))
	var ids []int32
	for _, id := range [][2]string{{otelprofiles.GNUBuildID, m.BuildID}, {otelprofiles.GoBuildID, m.GoBuildID}, {otelprofiles.FileHash, m.Hash}} {
		if id[1] != "" {
			ids = append(ids, d.attribute(id[0], anyText(id[1])))
		}
	}
	proto.Packed(&row, otelprofiles.MappingAttributes, ids)
	e.mappings[id] = d.mappings.id(row)
	return e.mappings[id]
}

// function returns the row of a function.
func (e *encoder) function(id profile.FunctionID) int32 {
	if e.functions[id] >= 0 {
		return e.functions[id]
	}
	f, d := e.p.Functions[id], e.dictionary
	var row proto.Message
	row.Int(otelprofiles.FunctionName, d.text(f.Name))
	row.Int(otelprofiles.FunctionSystemName, d.text(f.SystemName))
	row.Int(otelprofiles.FunctionFilename, d.text(f.File))
	row.Int(otelprofiles.FunctionStartLine, int64(f.StartLine))
	e.functions[id] = d.functions.id(row)
	return e.functions[id]
}

// architectures are the values of host.arch by uname -m.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// resource encodes the attributes of a process and its machine.
func (e *encoder) resource(p process) (m proto.Message) {
	meta := e.p.Meta
	if p.pid != 0 {
		keyValue(&m, otelprofiles.ResourceAttributes, otelprofiles.PID, anyNumber(int64(p.pid)))
	}
	machine := map[string]string{
		otelprofiles.HostName: meta.Host, otelprofiles.HostArch: cmp.Or(architectures[meta.Arch], meta.Arch), otelprofiles.OSVersion: meta.Kernel,
	}
	if meta.Kernel != "" {
		machine[otelprofiles.OSType] = "linux"
	}
	maps.Copy(machine, e.options.Resource)
	maps.Copy(machine, ownerAttributes(e.p.OwnerAt(p.owner)))
	machine[otelprofiles.Executable] = p.comm
	if file := e.p.Executables[p.pid]; file != "" {
		machine[otelprofiles.ExecutablePath], machine[otelprofiles.Executable] = file, path.Base(file)
	}
	all := map[string]proto.Message{otelprofiles.PID: {}} // already there
	for key, value := range machine {
		if value != "" {
			all[valid(key)] = anyText(value)
		}
	}
	for _, a := range e.p.Published[p.pid] {
		// A process knows its service better than the name of its container or unit does. For
		// everything else, others are more trustworthy.
		if key := valid(a.Key); all[key] == nil || key == otelprofiles.ServiceName {
			all[key] = anyValue(a.Value)
		}
	}
	delete(all, otelprofiles.PID)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		keyValue(&m, otelprofiles.ResourceAttributes, key, all[key])
	}
	return m
}

// ownerAttributes returns the attributes of an owner.
func ownerAttributes(o profile.Owner) map[string]string {
	name, inPod := o.Container, ""
	if o.Pod != "" {
		name, inPod = "", o.Container
	}
	all := map[string]string{
		otelprofiles.ServiceName: o.Service(), otelprofiles.ContainerID: o.ContainerID, otelprofiles.ContainerName: name,
		otelprofiles.ContainerImage: o.Image, otelprofiles.ContainerRuntime: o.Runtime,
		otelprofiles.PodName: o.Pod, otelprofiles.PodUID: o.PodUID, otelprofiles.PodNamespace: o.Namespace,
		otelprofiles.PodContainer: inPod, otelprofiles.Unit: o.Unit,
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// scope encodes the description of the run.
func (e *encoder) scope() (m proto.Message) {
	meta := e.p.Meta
	m.String(otelprofiles.ScopeName, otelprofiles.Scope)
	for _, a := range [][2]string{{otelprofiles.Command, meta.Command}, {otelprofiles.Event, meta.Event}, {otelprofiles.Target, meta.Scope}} {
		if a[1] != "" {
			keyValue(&m, otelprofiles.ScopeAttributes, a[0], anyText(a[1]))
		}
	}
	return m
}

// describeRun returns the attributes that all profiles have, as rows of the dictionary. They are not
// attributes of the scope, because they differ between windows, and back ends make labels of time
// series from attributes of the scope.
func (e *encoder) describeRun() []int32 {
	meta := e.p.Meta
	rows := []int32{e.dictionary.attribute(otelprofiles.Run, anyText(runinfo.Text(e.p)))}
	if meta.RequestedFrequency > 0 {
		rows = append(rows, e.dictionary.attribute(otelprofiles.RequestedFrequency, anyNumber(int64(meta.RequestedFrequency))))
	}
	if meta.Reduction > 0 {
		rows = append(rows, e.dictionary.attribute(otelprofiles.Reduction, anyNumber(int64(min(meta.Reduction, math.MaxInt64)))))
	}
	if meta.NamesOmitted {
		rows = append(rows, e.dictionary.attribute(otelprofiles.NamesOmitted, anyFlag(true)))
	}
	for cause, n := range e.p.Losses {
		if n > 0 {
			rows = append(rows, e.dictionary.attribute(otelprofiles.LossPrefix+profile.Loss(cause).String(), anyNumber(int64(n))))
		}
	}
	return rows
}
