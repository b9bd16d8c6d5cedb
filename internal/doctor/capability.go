package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/linux/capability"
)

// capability checks that c is in effect. What its lack means is in lack.
func capabilityCheck(c capability.Capability, lack fault) check {
	matters := lack.when
	lack.when = func(f *Facts) bool {
		return !f.Can(f.Known(c)) && (matters == nil || matters(f))
	}
	lack.what = func(f *Facts) string { return f.Known(c).String() + " is not in effect" }
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
				return "in effect, by CAP_SYS_ADMIN"
			case !f.Bounding.Has(known):
				return "missing, and not to be gained here"
			}
			return "missing"
		},
		faults: []fault{lack},
	}
}

// useful are the capabilities that fulgur makes use of.
var useful = []capability.Capability{
	capability.BPF, capability.Perfmon, capability.SysPtrace, capability.CheckpointRestore, capability.DACReadSearch, capability.Syslog,
}

// capabilityRemedy returns how to get c, and with it the others that are useful.
func capabilityRemedy(c capability.Capability) func(*Facts) Remedy {
	return func(f *Facts) Remedy {
		switch {
		case !f.Bounding.Has(f.Known(c)):
			return Remedy{
				Do:    "neither sudo nor setcap helps here, since the bounding set is without it: start fulgur outside (of a systemd service with CapabilityBoundingSet=), or the container as",
				Paste: dockerRun,
			}
		case f.NoNewPrivs:
			return Remedy{Do: "neither sudo nor setcap helps here, since no_new_privs is set: start fulgur outside (of a systemd service with NoNewPrivileges=, of a container with --security-opt no-new-privileges)"}
		case f.NoSetuid:
			return Remedy{Do: "run fulgur with sudo; setcap has no effect here, since its file system is mounted nosuid"}
		}
		return Remedy{Do: "run fulgur with sudo, or once", Paste: setcap(f)}
	}
}

// setcap returns the line that gives fulgur what it can use. More than the
// bounding set has cannot be asked for: the kernel would not execute it.
func setcap(f *Facts) string {
	var names []string
	for _, c := range useful {
		name := strings.ToLower(f.Known(c).String())
		if f.Bounding.Has(f.Known(c)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return fmt.Sprintf("sudo setcap %s=ep %s", strings.Join(names, ","), quote(f.Executable))
}

// quote makes one word of s for a shell.
func quote(s string) string {
	if !strings.ContainsAny(s, " \t\n'\"\\$`&;|<>()*?[]{}~#!") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
