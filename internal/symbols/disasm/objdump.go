package disasm

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ErrNoObjdump is returned by [Objdump] if objdump is not installed.
var ErrNoObjdump = errors.New("objdump (of binutils) is not installed")

const (
	// objdumpTime is objdump's time limit: it reads all symbols of a file before it
	// prints the first instruction.
	objdumpTime = 30 * time.Second
	// objdumpEnds is the time limit for objdump to exit after it is killed.
	objdumpEnds = time.Second
	// maxOutput bounds its output, in bytes.
	maxOutput = 64 << 20
	// longestX86 is the maximum size of an instruction, in bytes.
	longestX86 = 15
)

// Objdump runs objdump to disassemble the instructions of file from link-time virtual address
// start up to limit. objdump knows more instructions than [Decode], but takes longer.
func Objdump(ctx context.Context, file *os.File, machine elf.Machine, start, limit uint64) ([]Instruction, error) {
	program, err := exec.LookPath("objdump")
	if err != nil {
		return nil, ErrNoObjdump
	}
	ctx, cancel := context.WithTimeout(ctx, objdumpTime)
	defer cancel()
	// Pass the open file itself, as descriptor 3.
	args := []string{
		"--disassemble", "--disassemble-zeroes", "--wide", "--no-show-raw-insn",
		fmt.Sprintf("--start-address=%#x", start), fmt.Sprintf("--stop-address=%#x", limit),
	}
	if machine == elf.EM_X86_64 {
		args = append(args, "--disassembler-options=intel")
	}
	cmd := exec.CommandContext(ctx, program, append(args, "/proc/self/fd/3")...)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	type result struct {
		list []Instruction
		err  error
	}
	done := make(chan result, 1)
	go func() {
		list, err := runObjdump(cmd, limit)
		done <- result{list, err}
	}()
	select {
	case r := <-done:
		return r.list, r.err
	case <-ctx.Done():
	}
	// Even a killed objdump does not exit while it waits for a file system that hangs.
	select {
	case r := <-done:
		return r.list, r.err
	case <-time.After(objdumpEnds):
		return nil, fmt.Errorf("objdump %s: %w", file.Name(), context.Cause(ctx))
	}
}

// runObjdump runs objdump and parses its output for code that ends at limit.
func runObjdump(cmd *exec.Cmd, limit uint64) ([]Instruction, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	list, parseErr := parseObjdump(io.LimitReader(stdout, maxOutput), limit)
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("objdump %s: %w: %s", cmd.ExtraFiles[0].Name(), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return list, parseErr
}

// parseObjdump parses the output of objdump for code that ends at limit. It contains,
// among other lines, a line for each instruction: "  401136:\tpush   rbp".
func parseObjdump(r io.Reader, limit uint64) ([]Instruction, error) {
	var list []Instruction
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		number, text, ok := strings.Cut(lines.Text(), ":\t")
		if !ok {
			continue
		}
		address, err := strconv.ParseUint(strings.TrimSpace(number), 16, 64)
		if err != nil {
			continue // a heading
		}
		if n := len(list); n > 0 {
			if address <= list[n-1].Address {
				return nil, fmt.Errorf("objdump: address %#x after %#x", address, list[n-1].Address)
			}
			list[n-1].Size = int(min(address-list[n-1].Address, longestX86))
		}
		list = append(list, Instruction{Address: address, Text: strings.Join(strings.Fields(text), " ")})
	}
	if n := len(list); n > 0 && limit > list[n-1].Address {
		list[n-1].Size = int(min(limit-list[n-1].Address, longestX86))
	}
	return list, lines.Err()
}
