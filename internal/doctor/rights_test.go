package doctor

import (
	"testing"

	"fulgur/internal/linux/capability"
)

func TestIdentityMap(t *testing.T) {
	tests := map[string]bool{
		"         0          0 4294967295\n":                          true,
		"         0       1000          1\n":                          false,
		"         0       1000          1\n 1     100000     65536\n": false,
		"": false,
	}
	for text, want := range tests {
		if got := identityMap([]byte(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestCan(t *testing.T) {
	admin := Rights{Effective: capability.SetOf(capability.SysAdmin), Last: capability.CheckpointRestore}
	for c, want := range map[capability.Capability]bool{
		capability.BPF: true, capability.Perfmon: true, capability.CheckpointRestore: true, capability.SysAdmin: true,
		capability.SysPtrace: false, capability.Syslog: false, capability.DACReadSearch: false,
	} {
		if got := admin.Can(c); got != want {
			t.Errorf("with CAP_SYS_ADMIN alone, %s: got %v, want %v", c, got, want)
		}
	}
}

func TestKnown(t *testing.T) {
	before := Rights{Last: 37} // Linux 5.7
	for c, want := range map[capability.Capability]capability.Capability{
		capability.BPF: capability.SysAdmin, capability.CheckpointRestore: capability.SysAdmin, capability.SysPtrace: capability.SysPtrace,
	} {
		if got := before.Known(c); got != want {
			t.Errorf("%s: got %s, want %s", c, got, want)
		}
	}
}
