package otelprofiles

import (
	"slices"
	"strings"
)

// Names of attributes. Unless they begin with "fulgur.", they are in OpenTelemetry's semantic
// conventions, https://opentelemetry.io/docs/specs/semconv/.
const (
	// Of resources.
	PID            = "process.pid"
	Executable     = "process.executable.name"
	ExecutablePath = "process.executable.path"
	HostName       = "host.name"
	HostArch       = "host.arch"
	OSType         = "os.type"
	OSVersion      = "os.version"

	// Of resources in containers, pods and units.
	ServiceName      = "service.name"
	ContainerID      = "container.id"
	ContainerName    = "container.name"
	ContainerImage   = "container.image.name"
	ContainerRuntime = "container.runtime.name"
	PodName          = "k8s.pod.name"
	PodUID           = "k8s.pod.uid"
	PodNamespace     = "k8s.namespace.name"
	PodContainer     = "k8s.container.name" // its name in the pod's specification
	Unit             = "fulgur.systemd.unit"

	// Of samples. StackEnd is the reason why a user stack was truncated.
	ThreadID   = "thread.id"
	ThreadName = "thread.name"
	CPU        = "cpu.logical_number"
	StackEnd   = "fulgur.stack.end"

	// Of locations.
	FrameType = "profile.frame.type"

	// Of mappings.
	GNUBuildID = "process.executable.build_id.gnu"
	GoBuildID  = "process.executable.build_id.go"
	FileHash   = "process.executable.build_id.htlhash"

	// Of the scope: the command line, the event and what was measured.
	Command = "fulgur.command"
	Event   = "fulgur.event"
	Target  = "fulgur.target"

	// Of profiles, or of the scope in older files. LossPrefix and the name of a loss form the key
	// of its count. Run is the whole description of the run, see package runinfo. To save CPU time or
	// memory, fulgur may have lowered the rate (RequestedFrequency, in Hz), measured less (Reduction),
	// or not looked up functions (NamesOmitted).
	LossPrefix = "fulgur.lost."
	Run        = "fulgur.run"

	RequestedFrequency = "fulgur.frequency.requested"
	Reduction          = "fulgur.reduction"
	NamesOmitted       = "fulgur.names.omitted"
)

// OwnAttributes are the prefixes of attributes that the labels of programs must not have.
var OwnAttributes = []string{
	"cpu.", "container.", "fulgur.", "host.", "k8s.", "label.", "os.", "process.", "profile.", "service.", "telemetry.", "thread.",
}

// labelPrefix precedes keys of labels that begin with one of [OwnAttributes].
const labelPrefix = "label."

// LabelAttribute returns the key of the attribute for a program's label.
func LabelAttribute(key string) string {
	if isOwn(key) {
		return labelPrefix + key
	}
	return key
}

// AttributeLabel returns the key of the label that an attribute of a sample stands for, or "" if the
// attribute is not a program's.
func AttributeLabel(key string) string {
	if label, ok := strings.CutPrefix(key, labelPrefix); ok {
		return label
	}
	if isOwn(key) {
		return ""
	}
	return key
}

func isOwn(key string) bool {
	return slices.ContainsFunc(OwnAttributes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Scope is the name of fulgur's scope.
const Scope = "fulgur"

// OffCPU is OpenTelemetry's name for the value off-cpu.
const OffCPU = "off_cpu"

// Values of [FrameType].
const (
	FrameKernel = "kernel"
	FrameNative = "native"
)

// RuntimeFrames maps the modules of interpreted and JIT-compiled functions to values of
// [FrameType].
var RuntimeFrames = map[string]string{"[java]": "jvm", "[javascript]": "v8js", "[python]": "cpython", "[ruby]": "ruby"}
