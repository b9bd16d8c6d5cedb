package main

import (
	"fmt"
	"slices"
)

// arch is an architecture of machines that the rig boots.
type arch struct {
	name string // as Go and Debian call it
	// qemu is the emulator, machine its arguments for the machine and its CPU.
	// It runs without KVM: that works wherever the rig runs, nested or not.
	qemu    string
	machine []string
	// kernel is what the kernel's command line says beside what all have.
	kernel []string
	// serial returns QEMU's arguments for the two serial ports: the first that
	// the kernel knows as ttyS0 on our standard output, and the one that is its
	// console into a file.
	serial func(console string) []string
	// compilers is the format of the names that its compilers have on other machines.
	compilers string
	// pmu is whether test/rig/pmu's module is for it.
	pmu bool
}

var arches = []arch{
	{
		name:    "amd64",
		qemu:    "qemu-system-x86_64",
		machine: []string{"-cpu", "max"},
		// Emulation is slow enough without mitigations, and its clock is good.
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
		// Return addresses are signed in a way that does not take long to emulate.
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
