package flame

import (
	"strconv"
	"strings"
	"unicode/utf16"

	"fulgur/internal/profile"
)

// Key returns the key by which the address of a page names frame id: a hash of what tells its boxes from
// others, as key in names.js makes it. Other functions may have the same key.
func Key(p *profile.Profile, id profile.FrameID) string {
	f := boxFrame(p, id)
	inlined := "0"
	if f.inlined {
		inlined = "1"
	}
	hash := uint32(0x811c9dc5)
	for _, unit := range utf16.Encode([]rune(strings.Join([]string{f.name, f.module, kindNames[f.kind], inlined}, "\n"))) {
		hash = (hash ^ uint32(unit)) * 0x01000193
	}
	return strconv.FormatUint(uint64(hash), 36)
}
