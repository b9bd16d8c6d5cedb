package main

import (
	"fmt"
	"slices"
)

// arch is an architecture of the rig's machines.
type arch struct {
	name string // in Go's and Debian's notation
	// qemu is the emulator, and machine its arguments for the machine type and
	// CPU. It runs without KVM, so it works on any machine, nested or not.
	qemu    string
	machine []string
	// kernel is added to the common kernel command line.
	kernel []string
	// serial returns QEMU's arguments for two serial ports: the kernel's ttyS0
	// on our standard input and output, and the console into a file.
	serial func(console string) []string
	// compilers is the format of cross compilers' names.
	compilers string
	// pmu reports whether the module of test/rig/pmu supports it.
	pmu bool
}

var arches = []arch{
	{
		name: "amd64",
		qemu: "qemu-system-x86_64",
		// Without a PIT. On a busy host, the kernel can calibrate the TSC wrongly by it, and
		// then time passes up to 14 times too fast.
		// Without ERMS, which makes the kernel copy with "rep movsb": QEMU moves one byte
		// at a time. Without LA57, for shorter page walks.
		machine: []string{"-machine", "pc,pit=off", "-cpu", "max,erms=off,la57=off"},
		// Mitigations slow the emulation down, and its clock is good.
		kernel: []string{"console=ttyS1", "mitigations=off", "tsc=reliable", "no_timer_check"},
		serial: func(console string) []string {
			return []string{"-serial", "stdio", "-serial", "file:" + console}
		},
		compilers: "x86_64-linux-gnu-%s-12",
		pmu:       true,
	},
	{
		name: "arm64",
		qemu: "qemu-system-aarch64",
		// A signing algorithm for return addresses that is fast to emulate.
		machine: []string{"-machine", "virt", "-cpu", "max,pauth-impdef=on"},
		kernel:  []string{"console=ttyAMA0", "mitigations=off"},
		serial: func(console string) []string {
			return []string{"-serial", "file:" + console, "-chardev", "stdio,id=tests", "-device", "pci-serial,chardev=tests"}
		},
		compilers: "aarch64-linux-gnu-%s-12",
	},
}

// archOf returns the architecture of a name.
func archOf(name string) (arch, error) {
	i := slices.IndexFunc(arches, func(a arch) bool { return a.name == name })
	if i < 0 {
		return arch{}, fmt.Errorf("unknown architecture %s: neither amd64 nor arm64", name)
	}
	return arches[i], nil
}
