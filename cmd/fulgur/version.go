package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCommand struct{}

func (*versionCommand) run(_ context.Context, env environment) (int, error) {
	_, err := fmt.Fprintln(env.stdout, versionLine())
	return 0, err
}

// versionLine returns the version, the platform and the Go version.
func versionLine() string {
	return fmt.Sprintf("fulgur %s %s/%s %s", buildVersion(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// described is the output of git describe. make build sets it with the linker,
// because Go records no commit in a linked work tree.
var described string

// buildVersion returns the version of this build.
func buildVersion() string {
	if described != "" {
		return described
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return version(info)
}

// version returns the module's version, or the commit for a build in a checkout,
// with "+dirty" if files differ from it.
func version(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	version := "(devel)"
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			version = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			version += "+dirty"
		}
	}
	return version
}
