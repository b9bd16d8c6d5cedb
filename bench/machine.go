package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// describeMachine returns a line about the machine and the tools.
func describeMachine(tools []tool) string {
	var parts []string
	if name := cpuModel(); name != "" {
		parts = append(parts, name)
	}
	parts = append(parts, fmt.Sprintf("%d CPUs", runtime.NumCPU()))
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		parts = append(parts, "Linux "+unix.ByteSliceToString(uts.Release[:])+" "+unix.ByteSliceToString(uts.Machine[:]))
	}
	for _, t := range tools {
		if t.version != "" {
			parts = append(parts, t.version)
		}
	}
	return strings.Join(parts, ", ")
}

// cpuModel returns the model name in /proc/cpuinfo, which arm64 does not have.
func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	_, rest, found := strings.Cut(string(info), "model name\t: ")
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, "\n")
	return name
}
