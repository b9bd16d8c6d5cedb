package firefox

import (
	"encoding/hex"
	"fmt"
	"strings"

	"fulgur/internal/profile"
)

// lib is an entry of the profile's libs.
type lib struct {
	Arch       string  `json:"arch"`
	Name       string  `json:"name"`
	Path       string  `json:"path"`
	DebugName  string  `json:"debugName"`
	DebugPath  string  `json:"debugPath"`
	BreakpadID string  `json:"breakpadId"`
	CodeID     *string `json:"codeId"`
}

// lib returns the index of a mapping's library, or none for mapping 0.
func (t *tables) lib(id profile.MappingID) int32 {
	if id == 0 {
		return none
	}
	if t.ofMapping[id] != none {
		return t.ofMapping[id]
	}
	m := t.p.Mappings[id]
	key := libKey{m.Path, m.BuildID}
	index, ok := t.libIDs[key]
	if !ok {
		index = int32(len(t.libs))
		t.libIDs[key] = index
		name := t.p.ModuleName(id)
		made := lib{
			Arch: t.p.Meta.Arch, Name: name, Path: m.Path, DebugName: name, DebugPath: m.Path,
			BreakpadID: BreakpadID(m.BuildID),
		}
		if m.BuildID != "" {
			made.CodeID = &m.BuildID
		}
		t.libs = append(t.libs, made)
	}
	t.ofMapping[id] = index
	return index
}

// BreakpadID returns the ID by which symbol servers know the file with a hexadecimal
// build ID: its first 16 bytes as a GUID, with the first three numbers in little-endian
// order, and the age 0. Without a build ID it is all zeros.
func BreakpadID(buildID string) string {
	raw, err := hex.DecodeString(buildID)
	if err != nil {
		raw = nil
	}
	var id [16]byte
	copy(id[:], raw)
	for _, number := range [...][]byte{id[0:4], id[4:6], id[6:8]} {
		for i, j := 0, len(number)-1; i < j; i, j = i+1, j-1 {
			number[i], number[j] = number[j], number[i]
		}
	}
	return strings.ToUpper(fmt.Sprintf("%x", id)) + "0"
}
