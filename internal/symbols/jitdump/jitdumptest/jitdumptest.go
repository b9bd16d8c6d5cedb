// Package jitdumptest makes jitdump files for tests.
package jitdumptest

import (
	"encoding/binary"
)

// Order is a byte order of files.
type Order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// Writer makes the bytes of a jitdump file.
type Writer struct {
	Order Order
	// PID is the process in the header and in records of code.
	PID uint32
	// B is the file so far.
	B []byte
}

// New returns a file of a process in the byte order of amd64 and arm64, with its header.
func New(pid int) *Writer {
	w := &Writer{Order: binary.LittleEndian, PID: uint32(pid)}
	w.Header(1, 0)
	return w
}

// Header appends a header.
func (w *Writer) Header(version uint32, flags uint64) {
	const emX8664 = 62
	w.B = w.u32(w.B, 0x4A695444, version, 40, emX8664, 0, w.PID)
	w.B = w.u64(w.B, 1, flags)
}

func (w *Writer) u32(b []byte, values ...uint32) []byte {
	for _, v := range values {
		b = w.Order.AppendUint32(b, v)
	}
	return b
}

func (w *Writer) u64(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = w.Order.AppendUint64(b, v)
	}
	return b
}

// Record appends a record of any type.
func (w *Writer) Record(id uint32, time uint64, body []byte) {
	w.B = w.u32(w.B, id, uint32(16+len(body)))
	w.B = append(w.u64(w.B, time), body...)
}

// Load appends a function whose code is size bytes at an address.
func (w *Writer) Load(time, address, size, index uint64, name string) {
	b := w.u32(nil, w.PID, w.PID)
	b = append(w.u64(b, address, address, size, index), name...)
	b = append(b, make([]byte, 1+size)...)
	w.Record(0, time, b)
}

// Move appends a move of the function with an index.
func (w *Writer) Move(time, from, to, size, index uint64) {
	b := w.u32(nil, w.PID, w.PID)
	w.Record(1, time, w.u64(b, to, from, to, size, index))
}

// Line is an entry of a line table.
type Line struct {
	Address uint64
	Line    uint32
	File    string
}

// Lines appends the line table of the function that follows.
func (w *Writer) Lines(time, address uint64, lines ...Line) {
	b := w.u64(nil, address, uint64(len(lines)))
	for _, l := range lines {
		b = w.u32(w.u64(b, l.Address), l.Line, 0)
		b = append(append(b, l.File...), 0)
	}
	w.Record(2, time, b)
}

// Close appends the end of the runtime.
func (w *Writer) Close(time uint64) { w.Record(3, time, nil) }

// Unwinding appends unwind tables, with n bytes of them.
func (w *Writer) Unwinding(time uint64, n int) {
	w.Record(4, time, append(w.u64(nil, uint64(n), 0, 0), make([]byte, n)...))
}
