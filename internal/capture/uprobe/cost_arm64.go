package uprobe

import "bytes"

// The classes that kernels treat differently.
const (
	emulated class = iota // nop
	other
	classes
)

// classOf returns the class of an instruction.
func classOf(code []byte) class {
	if bytes.HasPrefix(code, []byte{0x1f, 0x20, 0x03, 0xd5}) {
		return emulated
	}
	return other
}

// samples are functions that begin with an instruction of each class, and bodies are the
// addresses of their code.
var samples = [classes]func(){nop, add}

var bodies [classes]uintptr

func nop()
func add()
