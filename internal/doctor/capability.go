package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/linux/capability"
	"fulgur/internal/message/plain"
)

// capabilityCheck returns a check that c is in effect. lack describes the
// consequences if it is not.
func capabilityCheck(c capability.Capability, lack fault) check {
	matters := lack.when
	lack.when = func(f *Facts) bool {
		return !f.Can(f.Known(c)) && (matters == nil || matters(f))
	}
	lack.what = func(f *Facts) string { return f.Known(c).String() + " is missing" }
	lack.plain = true
	lack.missing, lack.denies = c, capability.SetOf(c)
	lack.remedy = capabilityRemedy(c)
	return check{
		id: strings.ToLower(c.String()), group: groupProcess, title: c.String(),
		value: func(f *Facts) string {
			switch known := f.Known(c); {
			case f.Effective.Has(known):
				return "in effect"
			case f.Can(known):
				return "in effect, through CAP_SYS_ADMIN"
			case !f.Bounding.Has(known):
				return "missing, and cannot be gained here"
			}
			return "missing"
		},
		faults: []fault{lack},
	}
}

// useful lists the capabilities that fulgur can use.
var useful = []capability.Capability{
	capability.BPF, capability.Perfmon, capability.SysPtrace, capability.CheckpointRestore, capability.DACReadSearch, capability.Syslog,
}

// capabilityRemedy returns how to get c together with the other useful capabilities.
func capabilityRemedy(c capability.Capability) func(*Facts) Remedy {
	return func(f *Facts) Remedy {
		switch {
		case !f.Bounding.Has(f.Known(c)):
			return Remedy{
				Do:    "neither sudo nor setcap helps here, because the capability bounding set is limited: run fulgur outside the systemd service (CapabilityBoundingSet=), or start the container with",
				Paste: dockerRun,
			}
		case f.NoNewPrivs:
			return Remedy{Do: "neither sudo nor setcap helps here, because no_new_privs is set: run fulgur outside the systemd service (NoNewPrivileges=) or the container (--security-opt no-new-privileges)"}
		case f.NoSetuid:
			return Remedy{Do: "run fulgur with sudo; setcap has no effect here, because fulgur's file system is mounted nosuid"}
		}
		return Remedy{Do: "run fulgur with sudo, or run once", Paste: setcap(f)}
	}
}

// paranoidRemedy returns how to get access to perf events despite kernel.perf_event_paranoid.
func paranoidRemedy(f *Facts) Remedy {
	r := Remedy{Do: "run fulgur with sudo, or", Paste: "sudo sysctl " + sysctlParanoid + "=2"}
	if !f.Bounding.Has(capability.SysAdmin) {
		r.Do = "add it to the capabilities of the systemd service (CapabilityBoundingSet=, AmbientCapabilities=) or of the container, or"
	}
	return r
}

// setcap returns the shell command that gives fulgur's file the useful capabilities.
// It leaves out capabilities that the bounding set lacks: with them, the kernel
// would refuse to execute the file.
func setcap(f *Facts) string {
	var names []string
	for _, c := range useful {
		name := strings.ToLower(f.Known(c).String())
		if f.Bounding.Has(f.Known(c)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return fmt.Sprintf("sudo setcap %s=ep %s", strings.Join(names, ","), plain.Word(f.Executable))
}
