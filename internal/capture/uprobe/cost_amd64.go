package uprobe

import "bytes"

// The classes that kernels treat differently.
const (
	emulated class = iota // push
	marker                // endbr64
	reserve               // sub $imm8, %rsp
	other
	classes
)

// classOf returns the class of an instruction.
func classOf(code []byte) class {
	withoutREX := bytes.TrimPrefix(code, []byte{0x41})
	switch {
	case len(withoutREX) > 0 && withoutREX[0]&^7 == 0x50:
		return emulated
	case bytes.HasPrefix(code, []byte{0xf3, 0x0f, 0x1e, 0xfa}):
		return marker
	case bytes.HasPrefix(code, []byte{0x48, 0x83, 0xec}):
		return reserve
	}
	return other
}

// samples are functions that begin with an instruction of each class, and bodies are the
// addresses of their code.
var samples = [classes]func(){push, endbr, sub, xor}

var bodies [classes]uintptr

func push()
func endbr()
func sub()
func xor()
