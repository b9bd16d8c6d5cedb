package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
)

// Head describes an encoded profile.
type Head struct {
	// Samples is the number of samples, Profiles the number of OTLP profiles.
	Samples, Profiles uint64
}

// ErrCorrupt is returned for a file that a spool did not write, or that has changed since.
var ErrCorrupt = errors.New("corrupt file")

// Record is an encoded profile in the form that a spool stores.
type Record struct {
	Head
	data []byte
}

// A record consists of the magic number, the fields of the head, the length of the message,
// the CRC-32C of everything else, and the message compressed with zstd.
const (
	magic    = "fulgurW1"
	headSize = len(magic) + 3*8 + 4
)

// maxMessage limits the bytes of a message.
const maxMessage = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// windowSize is the window of the compression, in bytes. By default, each encoder would
// allocate 8 MiB.
const windowSize = 512 << 10

// NewRecord compresses a message.
func NewRecord(h Head, message []byte) (Record, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(windowSize))
	if err != nil {
		return Record{}, err
	}
	b := append(make([]byte, 0, headSize+len(message)/4), magic...)
	for _, n := range []uint64{h.Samples, h.Profiles, uint64(len(message))} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = append(b, 0, 0, 0, 0)
	b = w.EncodeAll(message, b)
	binary.LittleEndian.PutUint32(b[headSize-4:], checksum(b))
	return Record{h, b}, w.Close()
}

// checksum returns the checksum of a record, which excludes its own field.
func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:headSize-4], castagnoli), castagnoli, b[headSize:])
}

// parse returns the head of a record, the compressed message and its length, or [ErrCorrupt]. It does
// not decompress the message, which takes most of the time of [decode].
func parse(b []byte) (h Head, compressed []byte, length uint64, err error) {
	if len(b) < headSize || string(b[:len(magic)]) != magic || binary.LittleEndian.Uint32(b[headSize-4:]) != checksum(b) {
		return h, nil, 0, ErrCorrupt
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[len(magic)+8*i:]) }
	if n(2) > maxMessage {
		return h, nil, 0, ErrCorrupt
	}
	return Head{Samples: n(0), Profiles: n(1)}, b[headSize:], n(2), nil
}

// decode returns a record's message, or [ErrCorrupt].
func decode(b []byte) (message []byte, err error) {
	_, compressed, length, err := parse(b)
	if err != nil {
		return nil, err
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxMessage))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if message, err = r.DecodeAll(compressed, make([]byte, 0, length)); err != nil || uint64(len(message)) != length {
		return nil, ErrCorrupt
	}
	return message, nil
}
