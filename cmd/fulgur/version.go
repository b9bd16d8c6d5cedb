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

// versionLine names the program and what it was built for and with.
func versionLine() string {
	return fmt.Sprintf("fulgur %s %s/%s %s", buildVersion(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// described is what git describe said of the commit. The linker sets it in make
// build, since Go itself notes no commit in a work tree of git worktree.
var described string

// buildVersion names this build.
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

// version names the build: the module's version, or for one made in a checkout
// its commit, with "+dirty" if files differ from it.
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
